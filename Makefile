# Targets are self-documenting: a `##` comment after a target shows in `make help`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MUSTER := $(BIN)/muster
.DEFAULT_GOAL := help

.PHONY: help install dev check test fuzz bench demo lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

$(VENV)/.installed: requirements/base.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/base.lock
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.installed-dev: requirements/dev.lock $(VENV)/.installed
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@touch $@

install: $(VENV)/.installed ## make .venv with .venv/bin/muster, from the lock file with hashes

dev: $(VENV)/.installed-dev ## the same with the tools for tests and checks

check: dev ## ruff, mypy --strict, import-linter
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: dev ## the tests; their minute-long forms are left to fuzz
	$(BIN)/pytest

fuzz: dev ## the long form: 20,000 mutated requests, minute-long outages, soaks
	$(BIN)/pytest -m "slow or not slow" tests/acceptance

bench: dev ## the figures of docs/benchmarks.md, on this machine
	$(BIN)/python -m loadtests.bench

demo: install ## play Crafter against the whole platform (ARGS="--seconds 60 --worlds 4")
	$(MUSTER) demo $(ARGS)

lock: dev ## resolve the lock files anew
	$(BIN)/pip install -q uv
	$(BIN)/uv pip compile pyproject.toml requirements/build.in --universal --generate-hashes --python-version 3.11 --no-header --no-annotate -q -U -o requirements/base.lock
	$(BIN)/uv pip compile pyproject.toml requirements/build.in --extra dev --universal --generate-hashes --python-version 3.11 --no-header --no-annotate -q -U -o requirements/dev.lock

clean: ## remove what the targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build *.egg-info
