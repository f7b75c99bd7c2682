# Everything starts from `make demo` and `make test`; both need only Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test lint types benchmark clean

help: ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/:/' | column -t -s ':'

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Sonde needs Python 3.11 or newer; '$(PYTHON)' is older. Name another one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Setting up $(VENV) (once; a few minutes at most) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Adding the development tools ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,mujoco,fetch,data,render,cluster]'
	@touch $@

demo: $(VENV)/.installed ## Explore the pendulum with OpAx, then swing it up zero-shot (a few minutes)
	@$(BIN)/python -m sonde demo

test: lint types ## Lint, types and all tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/.installed-dev ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev ## Static types
	$(BIN)/ty check

benchmark: $(VENV)/.installed ## Measure the hot paths against the machine's limits (about 10 minutes)
	@$(BIN)/python -m sonde bench

clean: ## Remove the environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
