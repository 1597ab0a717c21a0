#!/usr/bin/env bash
# Plants each fault of the simulation, or of the cuts, in a copy of the sources: faults.sh simulation|cuts
#
# Those of the simulation are built together, and FAULT chooses one. Its plan in tests/simulation/data has to break a
# law then, with its seed or a further one: a change of the product lets other calls be lost and late. A fault of the
# cuts has to be found by a cut, of one of ONE_OF. With WRITE=1 such a seed is written to the plan, the first of SEEDS
# that breaks a law gives a plan to each fault that is found by none, and the table beside the faults is written.
# FAULTS: the names of those to plant.
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
copy=$CARGO_TARGET_DIR/faults
plans=$PWD/tests/simulation/data
simulate=$CARGO_TARGET_DIR/debug/simulate

simulation_plant() {
    # With a line of context: some stand beside each other.
    for name in $names; do
        git -C "$copy" apply -C1 "$faults/$name.patch"
    done
    cat >>"$copy/crates/process/src/simulation.rs" <<'EOF'

/// Returns true where the fault of this name is planted.
pub fn planted(name: &str) -> bool {
    static FAULT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    FAULT.get_or_init(|| std::env::var("FAULT").unwrap_or_default()) == name
}
EOF
    cargo build --quiet --locked --manifest-path "$copy/tests/simulation/Cargo.toml"
}

cuts_plant() {
    :
}

# Prints the law that the plan of a fault breaks.
broken() {
    local plan=$plans/$1.json said
    [ -e "$plan" ] || return 0
    said=$(FAULT=$1 "$simulate" --seeds 0 --plans "$plan" --further 3000 ${WRITE:+--write "$plan"}) ||
        echo "${said##*.json: }"
}

# Each of these prints what finds the fault of this name: nothing if nothing does.
simulation_finds() {
    local found seed
    found=$(broken "$1")
    if [ -z "$found" ] && [ "${WRITE:-}" = 1 ]; then
        seed=$( (FAULT=$1 "$simulate" --seeds "${SEEDS:-20000}" || true) | sed -n 's/^make simulate REPLAY=//p' | sort -n | head -1)
        [ -n "$seed" ] || return 0
        FAULT=$1 "$simulate" --replay "$seed" --short --write "$plans/$1.json" >/dev/null || true
        found=$(broken "$1")
    fi
    echo "$found"
}

cuts_find() {
    # Programs of their own: a test must never start a planted one.
    export CARGO_TARGET_DIR=$copy-target
    local found
    git -C "$copy" apply "$faults/$1.patch"
    cargo build --quiet --locked --manifest-path "$copy/Cargo.toml" -p sidecar -p auth-server
    found=$(ONE_OF=${ONE_OF:-5} MANIFEST=$copy/Cargo.toml scripts/cuts.sh 2>&1) || sed -n '/^red: /{s///p;q}' <<<"$found"
    git -C "$copy" apply --reverse "$faults/$1.patch"
}

# Each of these prints the columns of a fault of this name, beside its sentence.
simulation_columns() {
    # Without the names of sessions and keys.
    sed -nE '1s/^\{("by":"hand",)?"seed":([0-9]+),"law":"(.*)","setting.*/\1\2 | \3/p' "$plans/$1.json" |
        sed -E 's/^"by":"hand",[0-9]+/by hand/; s/\\"//g; s/[[:alnum:]_-]{20,}/…/g'
}

cuts_columns() {
    echo "${2%%: *}"
}

case $1 in
simulation)
    faults=$PWD/tests/simulation/faults plant=simulation_plant finds=simulation_finds columns=simulation_columns
    heads='Seed | Law' about="The plan of each is in \`../data\`. "
    ;;
cuts)
    faults=$PWD/tests/data/cuts/faults plant=cuts_plant finds=cuts_find columns=cuts_columns heads='Cut' about=
    ;;
esac
names=${FAULTS:-$(basename --multiple --suffix=.patch "$faults"/*.patch)}
table=$(mktemp)
trap 'rm -f "$table"' EXIT

# One directory for all, so that only what a fault changes is built again.
rm -rf "$copy"
mkdir -p "$copy"
# As new: else a file would be older than what was built of it with the last fault, or of another clone.
git ls-files -z | xargs -0 tar --create --ignore-failed-read | tar --extract --touch --directory "$copy"
git -C "$copy" init --quiet
$plant
echo "built in $SECONDS s"

missed=0
for name in $names; do
    began=$SECONDS
    found=$($finds "$name")
    if [ -z "$found" ]; then
        echo "$name: not found in $((SECONDS - began)) s" >&2
        missed=$((missed + 1))
        continue
    fi
    echo "$name: $found, in $((SECONDS - began)) s"
    echo "| $(head -1 "$faults/$name.patch") | $($columns "$name" "$found") |" >>"$table"
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
