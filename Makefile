# `make demo` and `make test` are all a newcomer needs: each creates .venv by itself when it is not there yet.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The stamp carries the folder's name: a virtual environment that was copied or moved here is created again.
STAMP := $(VENV)/ready-$(shell pwd | cksum | cut -d ' ' -f 1)
# Java and the jars of Delta Lake, for whatever uses Spark.
SPARK := $(STAMP)-spark
TESTS := $(STAMP)-tests

.DEFAULT_GOAL := help
.PHONY: help setup java postgresql browser check format test test-all golden bench demo clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(SPARK) ## create .venv with everything pinned in requirements.lock, and fetch what Spark needs

check: $(STAMP) ## lint, formatting, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## format the code and sort its imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Two processes: the tests that use Spark run in one of them, see tests/conftest.py. Byte code is written even where the
# environment says otherwise: compiling all sources takes 9 seconds of each of them, and 0.3 of each process that a test starts.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 2 --dist loadgroup --durations 20

test: $(TESTS) ## every feature; the goal is at most 8 minutes on two cores
	$(PYTEST) -m "not slow" --timeout 600 --junit-xml .pytest_cache/test.xml

test-all: $(TESTS) ## all tests, with many more random examples; writes the result to docs/testing.md
	status=0; HYPOTHESIS_PROFILE=thorough $(PYTEST) --timeout 7200 --junit-xml .pytest_cache/test-all.xml || status=$$?; \
	$(BIN)/python tools/record_run.py .pytest_cache/test-all.xml "make test-all"; exit $$status

golden: $(TESTS) ## rewrite tests/golden from what the code prints now; read the diff before you commit it
	$(BIN)/python -m pytest -q --update-golden

bench: $(SPARK) ## measure against a peer in the same run
	$(BIN)/python benchmarks/run.py

demo: $(SPARK) ## who is affected? Debian's graph in memory, then in a lake with a stream and a page; KEEP=1 leaves it running
	$(BIN)/python examples/demo.py $(if $(KEEP),--keep)

clean: ## remove .venv and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find src tests benchmarks examples -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "rederive needs Python 3.11 or newer; '$(PYTHON)' says: $$($(PYTHON) --version 2>&1 | head -n 1)" >&2; \
	  echo "Install one and name it: make setup PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing python3-venv"; apt-get update -qq && apt-get install -y -qq python3-venv; \
	  else \
	    echo "Python's venv module is missing. Install it: sudo apt-get install python3-venv" >&2; exit 1; \
	  fi; }
	@echo "Setting up $(VENV)"
	@[ -e $@ ] || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(SPARK): $(STAMP) src/rederive/lake/jars.py
	@$(MAKE) --no-print-directory java
	@$(BIN)/python -m rederive.lake.jars
	@touch $@

# What only the tests need: a browser, and PostgreSQL with its driver.
$(TESTS): $(SPARK)
	@$(MAKE) --no-print-directory browser postgresql
	@$(BIN)/python -m rederive.lake.jars postgresql
	@touch $@

browser: ## check for Chromium, in which the page of docs/service.md is tested; as root, install it
	@if command -v chromium >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing chromium"; apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; \
	else \
	  echo "Chromium is needed for the tests. Install it: sudo apt-get install chromium" >&2; exit 1; \
	fi

java: ## check for Java 17 or newer, which the Spark engine needs; as root, install it
	@major=$$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	if [ "$${major:-0}" -ge 17 ]; then echo "Java $$major is there."; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing openjdk-17-jre-headless"; apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless; \
	else \
	  echo "Java 17 or newer is needed. Install it: sudo apt-get install openjdk-17-jre-headless" >&2; exit 1; \
	fi

postgresql: ## check for PostgreSQL's server, which one test reads from; as root, install it
	@if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then echo "PostgreSQL is there."; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing postgresql"; apt-get update -qq && apt-get install -y -qq postgresql; \
	else \
	  echo "Without PostgreSQL its tests are skipped. To run them: sudo apt-get install postgresql"; \
	fi
