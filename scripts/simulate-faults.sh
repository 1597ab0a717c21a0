#!/usr/bin/env bash
# Plants each fault of tests/simulation/faults in a copy of the sources, and looks for the first seed of
# SEEDS that finds it. With WRITE=1 the seeds go into the table beside the faults.
set -euo pipefail
cd "$(dirname "$0")/.."

seeds=${SEEDS:-20000}
faults=$PWD/tests/simulation/faults
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
copy=$CARGO_TARGET_DIR/faults
table=$(mktemp)
trap 'rm -f "$table"' EXIT

# One directory for all, so that only what a fault changes is built again.
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z | xargs -0 tar --create --ignore-failed-read | tar --extract --directory "$copy"
git -C "$copy" init --quiet

missed=0
for patch in "$faults"/*.patch; do
    name=$(basename "$patch" .patch)
    git -C "$copy" apply "$patch"
    cargo build --quiet --locked --manifest-path "$copy/tests/simulation/Cargo.toml"
    if found=$("$CARGO_TARGET_DIR/debug/simulate" --seeds "$seeds"); then
        echo "$name: not found within $seeds seeds" >&2
        missed=$((missed + 1))
    else
        seed=$(sed -n 's/^make simulate REPLAY=//p' <<<"$found" | head -1)
        law=$(sed -n 's/^seed [0-9]*: //p' <<<"$found" | head -1)
        echo "$name: seed $seed: $law"
        echo "| $(head -1 "$patch") | $seed |" >>"$table"
    fi
    git -C "$copy" apply --reverse "$patch"
done

if [ "${WRITE:-}" = 1 ]; then
    {
        echo '# Planted faults'
        echo
        echo 'Each stands in a patch beside this file. `make simulate-faults WRITE=1` writes this table.'
        echo
        echo '| Fault | First seed that finds it |'
        echo '| --- | --- |'
        cat "$table"
    } >"$faults/README.md"
fi
exit "$missed"
