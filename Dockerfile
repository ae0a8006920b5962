# The server for one trained model, which is mounted at /model. docs/serve.md says how to use it.
FROM python:3.12-slim AS build
# Where pip looks for packages; unset, it asks its default index.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN python -m venv /opt/mops && /opt/mops/bin/pip install --no-cache-dir "/source[serve,onnx]"

FROM python:3.12-slim
COPY --from=build /opt/mops /opt/mops
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin mops
# Nothing is written but to /tmp, which may be in memory.
ENV PATH=/opt/mops/bin:$PATH HOME=/tmp MPLCONFIGDIR=/tmp MOPS_CACHE=/tmp/mops \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=90s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["mops", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["/model"]
