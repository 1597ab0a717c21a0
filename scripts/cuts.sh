#!/usr/bin/env bash
# Walks the cuts of recorded exchanges: all of them, or one of ONE_OF by SEED; ONLY: those of the exchanges
# with this part of a name.
set -euo pipefail
cd "$(dirname "$0")/.."

export POSTERN_TEST_CUTS_ONE_OF=${ONE_OF:-1} POSTERN_TEST_CUTS_SEED=${SEED:-1} POSTERN_TEST_CUTS_ONLY=${ONLY:-}
manifest=${MANIFEST:-Cargo.toml}
cargo build --quiet --locked --manifest-path "$manifest" -p sidecar -p auth-server
exec cargo test --quiet --locked --manifest-path "$manifest" -p tests --test cuts -- --ignored --nocapture
