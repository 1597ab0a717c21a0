#!/usr/bin/env bash
# Tries SEEDS worlds of the simulation from seed FROM on, or prints the story of the world REPLAY.
#
# tests/simulation/Cargo.lock has the versions of Cargo.lock; after a change of that one:
#   cp Cargo.lock tests/simulation/ && cargo metadata --manifest-path tests/simulation/Cargo.toml >/dev/null
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
cargo build --quiet --release --locked --manifest-path tests/simulation/Cargo.toml

if [ -n "${REPLAY:-}" ]; then
    exec "$CARGO_TARGET_DIR/release/simulate" --replay "$REPLAY" ${SHORT:+--short}
fi
exec "$CARGO_TARGET_DIR/release/simulate" --seeds "${SEEDS:-10000}" --from "${FROM:-1}"
