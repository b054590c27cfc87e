# Every target works alone on a fresh machine: it builds what it needs first.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PEERS  := $(VENV)/.peers
# Two workers, since the tests must fit two cores; tests/conftest.py keeps those of Spark on one of them.
PYTEST := $(BIN)/python -m pytest --numprocesses 2

# Tests start hundreds of short processes; each would compile every module anew if the shell forbids to keep the result.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup java demo cast test test-all lint bench model clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: java $(STAMP) ## Create .venv, install everything and a Java runtime; quick when done before

java:
	@tools/ensure-java

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || { echo "setup: creating $(VENV)"; "$$(tools/find-python)" -m venv $(VENV); }
	@echo "setup: installing omnigraph and its test tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

demo: setup ## Run something real, end to end, and print what it shows
	@$(BIN)/python -m demo.demo

cast: setup ## Run the demo and keep what it prints in docs/demo-cast.md
	@$(BIN)/python -m demo.cast

test: setup ## Fast tests with sampled sweeps (under 12 minutes on 2 cores)
	@$(PYTEST)

test-all: setup ## All tests, the full sweeps included (under 75 minutes)
	@$(PYTEST) -m "slow or not slow"

lint: setup ## Format check, ruff, mypy strict, layer contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: setup $(PEERS) ## Measure requests, hops and seconds; print tables
	@$(BIN)/python -m bench

# Peers to compare with. Without them the rest is measured all the same, so a failure to install is only told.
$(PEERS): pyproject.toml
	@echo "bench: installing the systems to compare with"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,bench]' \
		|| echo "bench: some could not be installed and will be left out" >&2
	@touch $@

model: setup ## Check the TLA+ model of the commit protocol and find every planted bug
	@$(BIN)/python -m model.check

clean: ## Remove caches and build results, not .venv
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis model/states
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 -r rm -rf
