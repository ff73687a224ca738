# make demo and make test set up .venv by themselves; the first time takes a few minutes, later calls no time.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

# The first of these that is 3.11 to 3.14; choose another by: make PYTHON=...
SUITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14; do \
	"$$python" -c "$(SUITS)" 2>/dev/null && { echo "$$python"; break; }; done)

# PyTorch is exactly the version of the lock file: any other could bring gigabytes that nothing here uses.
TORCH := $(shell grep '^torch==' requirements.lock)

.PHONY: help setup demo test docs clean lock

help: ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with all that is needed

demo: $(STAMP) ## translate at once, then teach a model the words of a program in two minutes
	@$(BIN)/python scripts/demo.py $(DEMO)

test: $(STAMP) ## style, types, tests, coverage: what has to pass
	@scripts/check

docs: $(STAMP) .venv-docs/.installed ## build the documentation site in build/site
	@$(BIN)/python scripts/site_builder.py --zensical .venv-docs/bin/zensical

lock: $(STAMP) ## write the versions in .venv to requirements.lock
	@scripts/lock

clean: ## remove .venv and what tools left behind; runs stay
	rm -rf $(VENV) .venv-docs .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov dist build node_modules
	find src tests scripts bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "heedful needs Python 3.11 to 3.14; install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -c "$(SUITS)" || { echo "$(PYTHON) is not Python 3.11 to 3.14; name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "making $(VENV) with $$("$(PYTHON)" --version) ..."; "$(PYTHON)" -m venv $(VENV); }
	@echo "installing $(TORCH) (once) ..."
	@$(PIP) install --quiet --constraint requirements.lock "$(TORCH)"
	@echo "installing the other packages (once) ..."
	@$(PIP) install --quiet --requirement requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# The generator of the site has an environment of its own, because nothing else needs its packages.
.venv-docs/.installed: requirements-docs.lock
	@test -x .venv-docs/bin/python || "$(PYTHON)" -m venv .venv-docs
	@echo "installing the site's generator (once) ..."
	@.venv-docs/bin/python -m pip --disable-pip-version-check install --quiet --requirement requirements-docs.lock
	@touch $@
