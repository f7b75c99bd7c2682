# From a fresh clone, every target needs only Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
JOBS ?= 2
SPHINX := $(BIN)/python -m sphinx --fail-on-warning --keep-going --doctree-dir build/doctrees
PYTEST := -m pytest -n $(JOBS) --dist worksteal

# `make test-gpu GPU_PYTHON=python3` uses an environment of your own, with JAX for your GPU, in place of .venv
GPU_PYTHON ?= $(BIN)/python
GPU_SETUP := $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(VENV)/.installed-dev)

.PHONY: help demo test check test-gpu tests lint types docs linkcheck screenshots benchmark figures dist clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/:/' | column -t -s ':'

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Sonde needs Python 3.11 or newer; '$(PYTHON)' is older. Name another one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Setting up $(VENV) (once; a few minutes at most) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Adding the development tools ..."
	@$(PIP) -e '.[dev,mujoco,fetch,data,render,ray,logs,onnx,control,fmu]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "Adding what builds the documentation ..."
	@$(PIP) -e '.[docs,mujoco,render]'
	@touch $@

demo: $(VENV)/.installed ## Explore the pendulum with OpAx, then swing it up zero-shot (a few minutes)
	@$(BIN)/python -m sonde demo

test: lint types tests ## Lint, types and all tests (about 25 minutes on two cores)

check: lint types ## Lint, types and the fast tests (a few minutes the first time)
	$(BIN)/python $(PYTEST) -m "not slow"

tests: $(VENV)/.installed-dev ## All tests
	$(BIN)/python $(PYTEST)

# plugins that happen to be installed beside JAX for a GPU (pytest-benchmark, say) may warn, and warnings are errors
test-gpu: $(GPU_SETUP) ## All tests with the GPU as default device
	@JAX_PLATFORMS= $(GPU_PYTHON) -c 'import jax, sys; sys.exit(jax.default_backend() == "cpu")' || \
	  { echo "JAX sees no GPU. Install it with GPU support ($(GPU_PYTHON) -m pip install 'jax[cuda13]'), or name"; \
	    echo "an environment that has it: make test-gpu GPU_PYTHON=python3"; exit 1; }
	JAX_PLATFORMS=cuda,cpu XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONPATH=$(CURDIR)/src:$(CURDIR) \
	  PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(GPU_PYTHON) $(PYTEST) -p xdist.plugin -p _hypothesis_pytestplugin

lint: $(VENV)/.installed-dev ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev ## Static types
	$(BIN)/ty check

docs: $(VENV)/.installed-docs ## Build the documentation site in build/docs, with its notebooks (minutes the first time)
	@$(BIN)/codespell
	@$(SPHINX) -b html docs build/docs
	@$(BIN)/python docs/_tools/check_links.py build/docs
	@echo "First page: file://$(CURDIR)/build/docs/index.html"

linkcheck: $(VENV)/.installed-docs ## Follow the documentation's links to other sites (needs a network)
	@$(SPHINX) -b linkcheck docs build/linkcheck

screenshots: $(VENV)/.installed-docs ## Pictures of every page of build/docs at two widths, in build/screenshots (needs Chromium)
	@$(BIN)/python docs/_tools/screenshots.py build/docs build/screenshots

benchmark: $(VENV)/.installed ## Measure the hot paths against the machine's limits (about 10 minutes)
	@$(BIN)/python -m benchmarks

figures: $(VENV)/.installed-dev ## Run the paper's experiments at a small scale and draw its figures (hours)
	@$(BIN)/python -m experiments all

dist: $(VENV)/.installed ## Build the wheels (sonde, sonde-deploy) and the source distribution, and check them
	@$(PIP) build twine
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m build --wheel --outdir dist packaging/deploy
	$(BIN)/twine check --strict dist/*

clean: ## Remove the environment, caches and builds
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .hypothesis build dist
