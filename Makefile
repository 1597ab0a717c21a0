# Every command a person or CI types; `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif

# CI builds exactly what Cargo.lock says; at a desk cargo may bring it up to date.
LOCKED := $(if $(filter true,$(CI)),--locked)

# The Python that plays the other side of the interop tests: what `make venv` made, or the system's.
VENV ?= .venv
export POSTERN_TEST_PYTHON ?= $(or $(wildcard $(abspath $(VENV))/bin/python),python3)

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: cmake ## See a small service protected, then play with it (ONCE=1: end with the tour's exit code)
	@deploy/demo/tour.sh

.PHONY: test
test: skips lint tests simulated cuts-briefly policy ## Formatting, lints, unit and e2e tests, 3,000 simulated worlds, a part of the cuts, dependency policy
	@scripts/skips.sh
	@echo "make test: passed"

.PHONY: test-full
# The images, whose tests wait for most of their time, are built and tried beside the rest.
test-full: tools-full test ## make test, and all that takes tools and time: 20,000 worlds, planted faults, measurements, fuzzing, manifests, images, the compose stack, systemd
	@$(MAKE) --jobs=2 --output-sync=target SIDE_BY_SIDE=1 containers simulated-fully bench-smoke fuzz-briefly k8s-render
	@echo "make test-full: passed"

.PHONY: fuzz-briefly
fuzz-briefly: cmake
	@scripts/fuzz.sh 20

.PHONY: tools-full
tools-full:
	@scripts/skips.sh full

.PHONY: lint
lint: cmake ## Words, formatting, clippy with warnings as errors, no I/O in the pure crates
	scripts/words.sh
	cargo fmt --all --check
	cargo clippy $(LOCKED) --workspace --all-targets -- -D warnings
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --locked --manifest-path fuzz/Cargo.toml --target-dir "$(or $(CARGO_TARGET_DIR),target)" -- -D warnings
	cargo fmt --manifest-path tests/simulation/Cargo.toml --check
	cargo clippy --locked --manifest-path tests/simulation/Cargo.toml --target-dir "$(or $(CARGO_TARGET_DIR),target)" --all-targets -- -D warnings
	scripts/pure-crates.sh
	for fault in tests/simulation/faults/*.patch tests/data/cuts/faults/*.patch; do git apply --check "$$fault"; done

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml

.PHONY: venv
venv: ## The Python environment of the interop tests (VENV=DIR: elsewhere than .venv), and their Node modules
	@scripts/python-venv.sh "$(VENV)"
	@scripts/node-modules.sh

# Skipped tests are listed before the long part and again at the end; with CI=true they fail at once.
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

.PHONY: simulated
simulated: cmake
	@QUICK=1 SEEDS=3000 scripts/simulate.sh

# After the worlds of `make simulated`: 20,000 together, and all planted faults.
.PHONY: simulated-fully
simulated-fully: cmake
	@QUICK=1 FROM=3001 SEEDS=17000 scripts/simulate.sh
	@scripts/faults.sh simulation

.PHONY: conformance
conformance: cmake ## Others' clients through the sidecar: h2load, nghttp, curl, grpcio, grpc-go, websockets (after `make venv`)
	cargo build $(LOCKED) --workspace --bins
	cargo test $(LOCKED) --workspace --test e2e -- conformance:: --nocapture

.PHONY: mcp-conformance
mcp-conformance: cmake ## The conformance suite of MCP without and with the sidecar before SERVER, an MCP server's URL (Node 22, npm)
	cargo build $(LOCKED) --workspace --bins
	scripts/mcp-conformance.sh "$(SERVER)" $(REVISION)

.PHONY: bodies
bodies: cmake ## 1 GiB up and down through the sidecar in flat memory (BYTES: another size)
	cargo build $(LOCKED) --workspace --bins
	POSTERN_TEST_BODY_BYTES=$(or $(BYTES),1073741824) \
	    cargo test $(LOCKED) --workspace --test e2e -- bodies::a_large_body --nocapture

.PHONY: restarts
restarts: cmake ## 200 restarts of the service, under load
	cargo build $(LOCKED) --workspace --bins
	POSTERN_TEST_RESTARTS=200 \
	    cargo test $(LOCKED) --workspace --test e2e -- restarts --nocapture

.PHONY: fuzz
fuzz: cmake ## Fuzz tokens, paths, keys, forms, framing, heads, and requests to real servers for FUZZ_SECONDS each, 60 by default
	@scripts/fuzz.sh "$(or $(FUZZ_SECONDS),60)"
	cargo build $(LOCKED) --workspace --bins
	POSTERN_TEST_HEADS_SECONDS=$(or $(FUZZ_SECONDS),60) \
	    cargo test $(LOCKED) --workspace --test e2e -- no_server_reads --nocapture

.PHONY: simulate
simulate: cmake ## Worlds in which everything fails, SEEDS of them; REPLAY=SEED: the story of one, SHORT=1 without what does not matter
	@scripts/simulate.sh

.PHONY: simulate-faults
simulate-faults: cmake ## Each planted fault has to be found (WRITE=1: the table of their seeds)
	@scripts/faults.sh simulation

.PHONY: cuts
cuts: cmake ## Cut recorded exchanges at every byte of each direction (ONE_OF=N: a part by SEED; ONLY=NAME: some)
	@scripts/cuts.sh

.PHONY: cuts-briefly
cuts-briefly: cmake
	@ONE_OF=$(or $(ONE_OF),20) scripts/cuts.sh

.PHONY: cuts-faults
cuts-faults: cmake ## Each fault planted in the sidecar has to be found by a cut (WRITE=1: their table)
	@scripts/faults.sh cuts

.PHONY: former-sidecar
former-sidecar: cmake ## What the sidecar of a former version, POSTERN_FORMER_SIDECAR=PATH, does with a list
	cargo build $(LOCKED) -p auth-server --bins
	cargo test $(LOCKED) -p tests --test e2e a_former_sidecar -- --ignored

.PHONY: policy
policy:
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; fi

# Measurements start the programs of their own profile. ROUNDS, SECONDS_EACH: how thorough; WRITE=1: put
# the race into docs/.
export ROUNDS SECONDS_EACH WRITE
export POSTERN_BENCH_ENVOY ?= $(firstword $(wildcard $(abspath $(VENV))/lib/python3*/site-packages/envoy/_bin/envoy))
measure = cargo build $(LOCKED) --release -p sidecar -p auth-server && cargo bench $(LOCKED) -p bench --bench

.PHONY: bench
bench: cmake ## Race the sidecar against HAProxy, Envoy and nginx, a quarter of an hour (WRITE=1: into docs/performance.md)
	$(measure) race

.PHONY: bench-fleet
bench-fleet: cmake ## 10 000 sidecars fetch the keys at once
	$(measure) fleet

.PHONY: bench-login
bench-login: cmake ## Logins for each second of CPU against the machine's own signatures
	$(measure) login

.PHONY: bench-sessions
bench-sessions: cmake ## A logout across 50 sidecars, the CPU of their polls and of a refresh (WRITE=1: into docs/performance.md)
	$(measure) sessions

.PHONY: bench-soak
bench-soak: cmake ## 10 minutes of mixed traffic, reloads and a stop: nothing wrong or lost, in flat memory
	$(measure) soak

# With the features of `make tests`, so that no dependency is built twice.
.PHONY: bench-smoke
bench-smoke: cmake ## A moment of every measurement with the quick build, to see that they work
	cargo build $(LOCKED) --workspace --bins
	SMOKE=1 cargo bench $(LOCKED) --workspace --profile dev --bench '*'

.PHONY: bench-peers
bench-peers: ## Install what `make bench` races against: Debian and PyPI packages
	@scripts/bench-peers.sh "$(VENV)"

# ---- running it somewhere ----

# The labels of the images.
VERSION ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# By default a name that only a registry on the machine itself can serve.
REGISTRY ?= localhost
BUILD_IMAGE = docker build --file deploy/Dockerfile --target $(1) --tag $(REGISTRY)/postern/$(1):$(VERSION) \
	--build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse --short HEAD 2>/dev/null || echo unknown) .

.PHONY: images
images: ## The container images, from deploy/Dockerfile (REGISTRY=…, VERSION=…: their names)
	$(call BUILD_IMAGE,auth-server)
	$(call BUILD_IMAGE,sidecar)
	$(call BUILD_IMAGE,postern-k8s)

.PHONY: compose
compose: ## The whole product in containers on this machine, up and healthy (docs/compose.md)
	docker compose --file deploy/docker-compose.yml up --build --wait

.PHONY: release
release: cmake ## Into dist/: images, binaries, component lists, manifests, chart, checksums (docs/release.md; TARGETS=…, REGISTRY=…)
	scripts/ensure-cross.sh $(TARGETS)
	rm -rf dist && TARGETS="$(TARGETS)" REGISTRY="$(REGISTRY)" scripts/release.sh dist

# The overlays as they would be applied, below target/k8s, and every check on them.
.PHONY: k8s-render
k8s-render: cmake ## Render the Kubernetes manifests, validate them, try them on the programs
	cargo build $(LOCKED) --workspace --bins
	@mkdir -p target/k8s
	@for overlay in dev prod; do kubectl kustomize "k8s/overlays/$$overlay" >"target/k8s/$$overlay.yaml"; done
	$(POSTERN_TEST_PYTHON) -m pytest -q -p no:cacheprovider tests/manifests

.PHONY: containers
containers: ## Build the images and try them and the compose stack (an engine is started if none runs)
	@# Without the jobs of a make around it, and without its variables: images under test have their own names.
	@MAKEFLAGS= tests/containers/run.sh
