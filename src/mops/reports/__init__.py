"""The report: tables, figures and one page, as a pure function of records."""

from importlib.util import find_spec

from mops.errors import UsageError


def missing_packages() -> list[str]:
    """Those of the extra `report`, without which most modules of this package do not import."""
    return [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]


def check_packages() -> None:
    if missing := missing_packages():
        raise UsageError(
            f"a report needs {' and '.join(missing)}: install with `pip install "
            '"mops-nlp[report]"` and run the same command again'
        )
