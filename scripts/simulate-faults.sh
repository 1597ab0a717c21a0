#!/usr/bin/env bash
# Plants each fault of tests/simulation/faults in a copy of the sources. Its plan in tests/simulation/data has
# to break a law then; where it has none, the first of SEEDS that breaks one gives it. With WRITE=1 all plans are
# made anew, and the table beside the faults is written. FAULTS: the names of those to plant.
set -euo pipefail
cd "$(dirname "$0")/.."

seeds=${SEEDS:-20000}
faults=$PWD/tests/simulation/faults
plans=$PWD/tests/simulation/data
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
copy=$CARGO_TARGET_DIR/faults
simulate=$CARGO_TARGET_DIR/debug/simulate

# One directory for all, so that only what a fault changes is built again.
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z | xargs -0 tar --create --ignore-failed-read | tar --extract --directory "$copy"
git -C "$copy" init --quiet
# Else a file would be older than what was built of it with the last fault.
sed -n "s|^+++ b/|$copy/|p" "$faults"/*.patch | sort -u | xargs touch

# Names the first seed that breaks a law.
red_seed() {
    ("$simulate" --seeds "$seeds" || true) | sed -n 's/^make simulate REPLAY=//p' | sort -n | head -1
}

missed=0
for name in ${FAULTS:-$(basename --multiple --suffix=.patch "$faults"/*.patch)}; do
    git -C "$copy" apply "$faults/$name.patch"
    # Without the warnings about what a fault leaves unused.
    if ! built=$(cargo build --quiet --locked --manifest-path "$copy/tests/simulation/Cargo.toml" 2>&1); then
        echo "$name: $built" >&2
        exit 1
    fi
    if [ "${WRITE:-}" = 1 ] || [ ! -e "$plans/$name.json" ]; then
        rm -f "$plans/$name.json"
        seed=$(red_seed)
        [ -z "$seed" ] || "$simulate" --replay "$seed" --short --write "$plans/$name.json" >/dev/null || true
    fi
    if [ ! -e "$plans/$name.json" ]; then
        echo "$name: not found" >&2
        missed=$((missed + 1))
    elif found=$("$simulate" --seeds 0 --plans "$plans/$name.json"); then
        echo "$name: its plan breaks no law, WRITE=1 looks for another one" >&2
        missed=$((missed + 1))
    else
        echo "$name: ${found##*.json: }"
    fi
    git -C "$copy" apply --reverse "$faults/$name.patch"
done

if [ "${WRITE:-}" = 1 ]; then
    {
        echo '# Planted faults'
        echo
        echo 'Each stands in a patch beside this file, and its plan in `../data`: what the seed made, without the'
        echo 'events that do not matter. `make simulate-faults WRITE=1` writes the plans and this table.'
        echo
        echo '| Fault | Seed | Law |'
        echo '| --- | --- | --- |'
        for patch in "$faults"/*.patch; do
            plan=$plans/$(basename "$patch" .patch).json
            # Without the names of sessions and keys.
            found=$(sed -nE '1s/^\{"seed":([0-9]+),"law":"(.*)","setting.*/\1 | \2/p' "$plan" |
                sed -E 's/\\"//g; s/[[:alnum:]_-]{20,}/…/g')
            echo "| $(head -1 "$patch") | $found |"
        done
    } >"$faults/README.md"
fi
exit "$missed"
