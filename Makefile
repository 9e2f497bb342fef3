# Everything a fresh clone needs is python3 (3.11 or later), git and make. `make demo` and `make test` are the two to know.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST ?=
WORKERS ?= 4
BENCH  ?= all
QUICK  := tests/unit tests/panels tests/walkthrough tests/tui tests/test_code_rules.py dba_console
RUN_TESTS = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet install

# Compiled modules are kept: the tests start hundreds of processes that load them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-long quick quick-tests slowest check format bench screenshots clean

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

venv: $(VENV)/.for-demo ## the virtual environment, in .venv

demo: $(VENV)/.for-demo ## an embedded server under load, and the console on it (ARGS='--incident lock-queue' to practise, ARGS=--cluster for a cutover)
	@$(BIN)/dba-console demo $(ARGS)

test: $(VENV)/.for-test ## the whole test suite, by 4 workers (PYTEST='tests/cli -k show' for a part, WORKERS=0 for none)
	$(RUN_TESTS) $(PYTEST)

test-long: $(VENV)/.for-test ## the whole suite, with 300 random examples of each property instead of the same 25
	$(RUN_TESTS) --hypothesis-profile=long $(PYTEST)

quick: $(VENV)/.for-test ## what a developer runs all the time: pure tests, the screen, and check beside them
	@$(MAKE) --no-print-directory --jobs --output-sync=target check quick-tests

quick-tests: $(VENV)/.for-test
	$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -q $(QUICK)

slowest: $(VENV)/.for-test ## where the seconds of the last run of the tests went
	@$(BIN)/python -m tests.slowest

check: $(VENV)/.for-test ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.for-test ## put the code into its format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.for-test ## measure what the documents claim (BENCH=smoke for a minute's worth)
	$(BIN)/python -m bench $(BENCH)

screenshots: $(VENV)/.for-test ## make screenshots/ anew from a session on a server under load
	$(BIN)/python -m screenshots

clean: ## remove what was built, the fetched servers included, and what killed runs of the tests left behind
	@$(PYTHON) -m tests.leftovers
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info

# A stamp is older than pyproject.toml when the dependencies may have changed; then pip looks again.
$(VENV)/.for-demo: pyproject.toml | $(BIN)/pip
	$(PIP) -e '.[demo]' --config-settings editable_mode=compat
	@touch $@

$(VENV)/.for-test: pyproject.toml | $(BIN)/pip
	$(PIP) -e '.[demo,test,dev]' --config-settings editable_mode=compat
	@touch $@ $(VENV)/.for-demo

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "python 3.11 or later is needed, and $(PYTHON) is not: make PYTHON=python3.12, for instance" >&2; exit 1; }
	@$(PYTHON) -c 'import venv; from ensurepip import bootstrap' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments here: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
