# Everything the project needs is installed into .venv by these targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto

.PHONY: help demo test base check format benchmark clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:.*## /\t/'

$(VENV)/.base: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[report]"
	@touch $@

$(VENV)/.dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@ $(VENV)/.base

$(VENV)/.browser: $(VENV)/.dev tests/support/browsers.py
	$(BIN)/python tests/support/browsers.py
	@touch $@

demo: $(VENV)/.base  ## train the plain and the fair ranker on built-in data and compare them
	$(BIN)/pairity demo

test: check $(VENV)/.browser  ## lint, types, and all tests
	$(BIN)/python -m pytest --numprocesses $(WORKERS)

base:  ## the tests with the base install only, in an environment of its own: no engine is there
	test -x $(VENV)-base/bin/python || $(PYTHON) -m venv $(VENV)-base
	$(VENV)-base/bin/python -m pip install --quiet --editable ".[test]"
	$(VENV)-base/bin/python -m pytest --numprocesses $(WORKERS)

check: $(VENV)/.dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev  ## let ruff tidy up
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(VENV)/.dev  ## print the speed table of the README; takes some minutes
	$(BIN)/python -m benchmarks

clean:  ## remove the environment and all caches
	rm -rf $(VENV) $(VENV)-base .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
