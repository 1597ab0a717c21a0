#!/usr/bin/env bash
# Tries the plans of tests/simulation/data and SEEDS worlds of the simulation from seed FROM on, or prints the
# story of the world REPLAY.
#
# tests/simulation/Cargo.lock has the versions of Cargo.lock; after a change of that one:
#   cp Cargo.lock tests/simulation/ && cargo metadata --manifest-path tests/simulation/Cargo.toml >/dev/null
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
# The quick build is slower: for some thousands it saves the minutes of the other one.
profile=${QUICK:+dev}
cargo build --quiet --profile "${profile:-release}" --locked --manifest-path tests/simulation/Cargo.toml
simulate=$CARGO_TARGET_DIR/$([ -n "$profile" ] && echo debug || echo release)/simulate

if [ -n "${REPLAY:-}" ]; then
    exec "$simulate" --replay "$REPLAY" ${SHORT:+--short}
fi
exec "$simulate" --seeds "${SEEDS:-10000}" --from "${FROM:-1}" --plans tests/simulation/data/*.json
