#!/usr/bin/env bash
# Plants each fault of the simulation, or of the cuts, in a copy of the sources: faults.sh simulation|cuts
#
# A fault of the simulation has a plan in tests/simulation/data, which has to break a law then; where it has
# none, the first of SEEDS that breaks one gives it. A fault of the cuts has to be found by a cut, of one of
# ONE_OF. With WRITE=1 all plans are made anew, and the table beside the faults is written. FAULTS: the names
# of those to plant.
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
copy=$CARGO_TARGET_DIR/faults
plans=$PWD/tests/simulation/data
simulate=$CARGO_TARGET_DIR/debug/simulate

# Each of these builds the copy, and prints what finds the fault of this name: nothing if nothing does.
simulation_finds() {
    cargo build --quiet --locked --manifest-path "$copy/tests/simulation/Cargo.toml"
    local plan=$plans/$1.json seed found
    if [ "${WRITE:-}" = 1 ] || [ ! -e "$plan" ]; then
        rm -f "$plan"
        seed=$( ("$simulate" --seeds "${SEEDS:-20000}" || true) | sed -n 's/^make simulate REPLAY=//p' | sort -n | head -1)
        [ -n "$seed" ] || return 0
        "$simulate" --replay "$seed" --short --write "$plan" >/dev/null || true
    fi
    found=$("$simulate" --seeds 0 --plans "$plan") || echo "${found##*.json: }"
}

cuts_find() {
    # Programs of their own: a test must never start a planted one.
    export CARGO_TARGET_DIR=$copy-target
    cargo build --quiet --locked --manifest-path "$copy/Cargo.toml" -p sidecar -p auth-server
    local found
    found=$(ONE_OF=${ONE_OF:-5} MANIFEST=$copy/Cargo.toml scripts/cuts.sh 2>&1) || sed -n '/^red: /{s///p;q}' <<<"$found"
}

# Each of these prints the columns of a fault of this name, beside its sentence.
simulation_columns() {
    # Without the names of sessions and keys.
    sed -nE '1s/^\{"seed":([0-9]+),"law":"(.*)","setting.*/\1 | \2/p' "$plans/$1.json" |
        sed -E 's/\\"//g; s/[[:alnum:]_-]{20,}/…/g'
}

cuts_columns() {
    echo "${2%%: *}"
}

case $1 in
simulation)
    faults=$PWD/tests/simulation/faults finds=simulation_finds columns=simulation_columns
    heads='Seed | Law' about="The plan of each is in \`../data\`. "
    ;;
cuts)
    faults=$PWD/tests/data/cuts/faults finds=cuts_find columns=cuts_columns heads='Cut' about=
    ;;
esac
table=$(mktemp)
trap 'rm -f "$table"' EXIT

# One directory for all, so that only what a fault changes is built again.
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z | xargs -0 tar --create --ignore-failed-read | tar --extract --directory "$copy"
git -C "$copy" init --quiet
# Else a file would be older than what was built of it with the last fault.
sed -n "s|^+++ b/|$copy/|p" "$faults"/*.patch | sort -u | xargs touch

missed=0
for name in ${FAULTS:-$(basename --multiple --suffix=.patch "$faults"/*.patch)}; do
    patch=$faults/$name.patch
    git -C "$copy" apply "$patch"
    found=$($finds "$name")
    git -C "$copy" apply --reverse "$patch"
    if [ -z "$found" ]; then
        echo "$name: not found" >&2
        missed=$((missed + 1))
        continue
    fi
    echo "$name: $found"
    echo "| $(head -1 "$patch") | $($columns "$name" "$found") |" >>"$table"
done

if [ "${WRITE:-}" = 1 ]; then
    {
        echo '# Planted faults'
        echo
        echo "Each stands in a patch beside this file. $about\`scripts/faults.sh $1\` with \`WRITE=1\` writes this table."
        echo
        echo "| Fault | $heads |"
        echo "|$(sed 's/[^|]*/ --- /g' <<<"Fault | $heads")|"
        cat "$table"
    } >"$faults/README.md"
fi
exit "$missed"
