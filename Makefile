# make demo | test | test-quick | test-all | check | web | vscode | screenshots | fuzz | emulator | docs | site | walkthrough | leaderboard | bench | bench-page | calibrate | clean. Each works alone on a fresh clone.

PYTHON   ?= python3
VENV     := .venv
BIN      := $(VENV)/bin
JOBS     ?= 2
VERSIONS ?= 3.10 3.11 3.12 3.13 3.14
ARGS     ?=
AGAINST  ?= $(shell git describe --tags --abbrev=0 2>/dev/null)
SECONDS  ?= 600
SEED     ?=
DEMO     ?= tilelet demo
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start Python hundreds of times: without byte code each would compile the whole package.
unexport PYTHONDONTWRITEBYTECODE

# Stamps: reinstall only when pyproject.toml changed.
INSTALLED     := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-all check web vscode web-check screenshots page-bench fuzz emulator docs site walkthrough leaderboard bench bench-page bench-against calibrate format clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile

demo: $(INSTALLED) ## a Qwen3-32B layer, as first written and optimised: checked and compared
	$(BIN)/$(DEMO)

# worksteal: neighboring tests stay in one process, which keeps what it compiled and loaded.
PYTEST = $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

test: $(INSTALLED_DEV) ## run all tests
	$(PYTEST) --durations=5 $(ARGS)

# From text to IR, its meaning and messages, the device model, and the examples on all engines.
# Left out: tests that compile much C or start processes, whole models, generated programs.
QUICK = analysis checkpoint device diag dialects examples frontend interp ir language numerics ops \
        passes test_layers.py

test-quick: $(INSTALLED_DEV) ## run the tests of the language, its messages and the device model (1 minute)
	$(PYTEST) $(QUICK:%=tests/%) --ignore=tests/language/test_types.py $(ARGS)

# Versions that are not installed are named and left out; one that fails fails the whole.
test-all: ## run all tests with every Python of 3.10 to 3.14 that is installed
	@tested=; failed=; for version in $(VERSIONS); do \
	  python=; for candidate in python$$version "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*/bin/python; do \
	    "$$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1 && { python=$$candidate; break; }; \
	  done; \
	  if [ -z "$$python" ]; then echo "Python $$version: not installed"; continue; fi; \
	  echo "Python $$version: $$python"; tested="$$tested $$version"; \
	  $(MAKE) --no-print-directory test PYTHON="$$python" VENV=".venv-$$version" || failed="$$failed $$version"; \
	done; \
	echo "tested with:$${tested:- nothing}"; \
	if [ -n "$$failed" ]; then echo "failed with:$$failed"; exit 1; fi; [ -n "$$tested" ]

check: $(INSTALLED_DEV) ## formatting, lint, types, generated pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	git ls-files '*.c' '*.h' | xargs $(BIN)/clang-format --dry-run --Werror
	$(BIN)/pyright & src=$$!; $(BIN)/pyright -p tests && wait $$src
	$(BIN)/tilelet docs --check
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory web-check; \
	  else echo "no node here: src/tilelet/report/page is not compared with web/"; fi

web: web/node_modules ## build the script and the style of the page from web/
	cd web && npm run --silent build

vscode: editors/vscode/node_modules ## package the VS Code extension: editors/vscode/dist/tilelet.vsix
	cd editors/vscode && npm run --silent build && python3 pack.py

editors/vscode/node_modules: editors/vscode/package-lock.json
	cd editors/vscode && npm ci --silent

web-check: web/node_modules
	cd web && npm run --silent check && npm run --silent test

web/node_modules: web/package-lock.json
	cd web && npm ci --silent --no-audit --no-fund
	@touch $@

screenshots: $(INSTALLED_DEV) ## make the pictures of docs/page.md in a Chromium
	$(BIN)/python -m tests.report.screenshots docs/page

page-bench: $(INSTALLED_DEV) ## measure the page in a Chromium: load and pan
	$(BIN)/python -m tests.report.measure $(ARGS)

fuzz: $(INSTALLED_DEV) ## search for wrong rewritings, proofs, checks and results, SECONDS=600 each; SEED= repeats a search
	$(BIN)/python -m tests.fuzz.rewrites --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.near_equal --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz.racing --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) --jobs $(JOBS) $(ARGS)

# For tests/cpu/test_aarch64.py --thorough.
emulator: ## install a cross compiler and an emulator of aarch64 (Debian, Ubuntu; as root)
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user

docs: $(INSTALLED_DEV) ## regenerate the pages that are made from the code
	$(BIN)/tilelet docs --write

site: $(INSTALLED_DEV) ## build the documentation with search into build_output/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

walkthrough: $(INSTALLED_DEV) ## measure the Qwen3 programs again, write docs/qwen3.md
	$(BIN)/tilelet walkthrough --write $(ARGS)

leaderboard: $(INSTALLED_DEV) ## score the entries in gym/ again, write docs/leaderboard.md
	$(BIN)/tilelet gym score naive gym/optimise gym/hand --markdown docs/leaderboard.md

bench: $(INSTALLED_DEV) ## measure the native engine on this machine
	$(BIN)/tilelet bench $(ARGS)

bench-page: $(INSTALLED_DEV) ## measure this machine for docs/bench.md: NAME=mine
	@test -n "$(NAME)" || { echo "error: name the machine: make bench-page NAME=mine"; exit 1; }
	$(BIN)/tilelet bench --json docs/bench/$(NAME).json $(ARGS)
	$(BIN)/tilelet docs --write

bench-against: $(INSTALLED_DEV) ## compare the native engine with that of AGAINST= (the last release)
	@test -n "$(AGAINST)" || { echo "error: no release is tagged here: say make bench-against AGAINST=REVISION"; exit 1; }
	$(BIN)/tilelet bench --against $(AGAINST) $(ARGS)

calibrate: $(INSTALLED_DEV) ## compare the device model with published measurements
	$(BIN)/tilelet calibrate report $(if $(PROGRAMS),--programs $(PROGRAMS)) $(ARGS)

format: $(INSTALLED_DEV) ## format and fix what can be fixed safely
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	git ls-files '*.c' '*.h' | xargs $(BIN)/clang-format -i

clean: ## remove what the other targets made
	rm -rf $(VENV) $(VERSIONS:%=.venv-%) build dist build_output .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '*.egg-info' -type d -prune -exec rm -rf {} +

# Debian and Ubuntu ship python3 without ensurepip; `-m venv` would then leave a half-made .venv.
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: no '$(PYTHON)' on this machine: install Python 3.10 or newer, or say make PYTHON=..."; \
	  exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "error: $$($(PYTHON) --version) is too old: Tilelet needs Python 3.10 or newer (make PYTHON=...)"; \
	  exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "error: $(PYTHON) has no venv module: install it (on Debian or Ubuntu: apt install python3-venv)"; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(INSTALLED_DEV): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[dev]'
	@touch $(INSTALLED) $@
