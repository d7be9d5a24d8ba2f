# Two commands on a fresh machine with git, make and Python 3.11:
#   make reproduce   sets everything up and prints the exactness and cost table of every parametrization
#   make test        sets everything up and runs every check
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup reproduce test lint clean help
help:
	@sed -n 's/^#   //p' Makefile

setup: .venv/ready

# `ready` is written last: a set-up that was interrupted is done again.
.venv/ready: pyproject.toml constraints.txt $(wildcard gomhc/kernels/native/*)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "gomhc needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; try: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

reproduce: setup
	$(BIN)/gomhc exactness

test: setup lint
	$(BIN)/python -m pytest
	$(BIN)/python -m pytest --unchecked

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
