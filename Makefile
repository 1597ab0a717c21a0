# Every command a person or CI types; `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# CI builds exactly what Cargo.lock says; at a desk cargo may bring it up to date.
LOCKED := $(if $(filter true,$(CI)),--locked)

# The Python that plays the other side of the interop tests: what `make venv` made, or the system's.
VENV ?= .venv
export POSTERN_TEST_PYTHON ?= $(or $(wildcard $(abspath $(VENV))/bin/python),python3)

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: cmake ## See a small service protected, then play with it (ONCE=1: end with the tour's exit code)
	@deploy/demo/tour.sh

.PHONY: test
test: skips lint tests policy ## Everything CI checks: formatting, lints, unit and e2e tests, dependency policy
	@scripts/skips.sh
	@echo "make test: passed"

.PHONY: lint
lint: cmake ## Formatting, clippy with warnings as errors, the purity of `contract`
	cargo fmt --all --check
	cargo clippy $(LOCKED) --workspace --all-targets -- -D warnings
	scripts/contract-is-pure.sh

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all

.PHONY: venv
venv: ## The Python environment of the interop tests (VENV=DIR: elsewhere than .venv)
	@scripts/python-venv.sh "$(VENV)"

# What cannot run here is said before the long part and again at the end; with CI=true it fails at once.
.PHONY: skips
skips:
	@scripts/skips.sh

.PHONY: cmake
cmake:
	@scripts/ensure-cmake.sh

# The e2e tests start the programs that stand beside their own executable, so those are built first.
.PHONY: tests
tests: cmake
	cargo build $(LOCKED) --workspace --bins
	@if cargo nextest --version >/dev/null 2>&1; then \
	    cargo nextest run $(LOCKED) --workspace && cargo test $(LOCKED) --workspace --doc; \
	else \
	    cargo test $(LOCKED) --workspace; \
	fi

.PHONY: policy
policy:
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; fi
