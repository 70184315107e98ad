# Everything a contributor runs; `make` alone lists it.
# Needs a Python >= 3.11 and a package registry for the first run, and no network after that.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo cluster-demo quick test coverage check bench docs browser screens clean

# The first Python on the PATH that is new enough. Yours instead: make PYTHON=/path/to/python3 setup
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo "$$p"; break; fi; done)

# More arguments for pytest or the benchmarks: make test ARGS='-k seals'
ARGS ?=

BIN := .venv/bin

# A stamp is named after pyproject.toml's content and this folder's path: a touched file costs nothing, a changed
# file or a moved tree installs again. `demo` needs Evener and its embedded model only, so it does not wait for the rest.
KEY := $(shell { pwd; cat pyproject.toml; } | cksum | cut -d' ' -f1)
RUNTIME := .venv/.runtime-$(KEY)
DEV := .venv/.dev-$(KEY)

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(DEV) ## prepare .venv with everything a contributor needs

demo: $(RUNTIME) ## a real model on this machine, without a key: three wires, a tool, a schema
	@$(BIN)/python -m evener.demo

cluster-demo: $(DEV) ## several machines in small: PostgreSQL, Temporal, two workers; one is killed
	@$(BIN)/python scripts/cluster_demo.py

quick: $(DEV) ## run the tests that need no socket, no process and no patience: a minute
	@$(BIN)/python -m pytest -n auto --dist worksteal -m 'not (socket or process or slow)' $(ARGS)

test: $(DEV) ## run all tests
	@$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

coverage: $(DEV) ## run all tests and print which lines they ran, child processes aside
	@$(BIN)/python -m pytest -n auto --dist worksteal --cov=evener --cov-report=term:skip-covered $(ARGS)

check: $(DEV) ## lint, formatting, types, and the tests of the tree's shape
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/shape $(ARGS)

bench: $(DEV) ## print the benchmark figures; ARGS=peers or ARGS='fuzz --seconds 60' for the rest
	@$(BIN)/python -m bench $(ARGS)

docs: $(DEV) ## write anew what the documents say of the code and of the tests
	@$(BIN)/python -m bench.context_page
	@$(BIN)/python scripts/protocol.py
	@$(BIN)/python scripts/requirements.py
	@$(BIN)/python scripts/mistakes.py

browser: ## install the chromium, tmux, zsh and fish of Debian, which the tests of viewer, chat and completion drive; needs root
	apt-get install -y --no-install-recommends chromium fonts-dejavu-core fonts-inter tmux zsh fish

screens: $(DEV) ## take the pictures in docs/screens anew: the viewer, a chat, a list, an exported page
	@$(BIN)/python scripts/screens.py
	@$(BIN)/python scripts/terminal_screens.py

clean: ## delete .venv, caches and build output
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage build dist bench/.envs bench/failures
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNTIME):
	@$(need-python)
	@"$(PYTHON)" scripts/setup.py local
	@touch $@

$(DEV):
	@$(need-python)
	@"$(PYTHON)" scripts/setup.py dev local
	@touch $(RUNTIME) $@

define need-python
"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "Evener needs Python 3.11 or newer, and $(if $(PYTHON),'$(PYTHON)' is not one,there is none on the PATH)." >&2; \
	echo "Install one, or name it: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 1; }
endef
