#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET…]: runs each fuzz target for so long, on the stable toolchain.
# fuzz.sh minimise: puts what was found new, as few and small files as cover the same, into fuzz/corpus.
#
# `cargo fuzz` wants nightly for the sanitizers; the product has no unsafe code for them to check. The
# coverage counters that libFuzzer steers by are stable code generation flags. What is found new goes
# into fuzz/target/corpus, a finding into fuzz/findings, and a finding ends this with an error.
#
# fuzz/Cargo.lock has the versions of Cargo.lock; after a change of that one:
#   cp Cargo.lock fuzz/ && cargo metadata --manifest-path fuzz/Cargo.toml >/dev/null
set -euo pipefail
cd "$(dirname "$0")/.."

# Per target: the product's limits bound what a client can send, so nothing may take long or much.
limits=(-max_len=4096 -timeout=10 -rss_limit_mb=1024)
# A corpus small enough to read.
kept_files=12
# Progress lines; fuzz/target/TARGET.log has them.
chatter='^#[0-9]+[[:space:]]+(NEW|REDUCE)|NEW_FUNC|^"|^######'

host=$(rustc -vV | sed -n 's/^host: //p')
# A folder of its own: these programs share nothing with the others.
directory=${CARGO_TARGET_DIR:+$CARGO_TARGET_DIR/fuzz}
directory=${directory:-fuzz/target}
built=$directory/$host/release

build() {
  local counters=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares)
  # --target: build scripts and macros run on this machine and are not instrumented.
  RUSTFLAGS="${counters[*]} --cfg fuzzing" cargo build --locked --release \
    --manifest-path fuzz/Cargo.toml --target-dir "$directory" --target "$host"
}

targets() {
  local file
  for file in fuzz/targets/*.rs; do basename "$file" .rs; done
}

fuzz() {
  local target=$1 seconds=$2 found=fuzz/target/corpus/$1
  mkdir -p "$found" fuzz/findings
  echo "fuzz: $target for $seconds s"
  # Not a pipe: the status is to be the fuzzer's, which is an error where there is a finding.
  "$built/$target" "$found" "fuzz/corpus/$target" "${limits[@]}" -max_total_time="$seconds" \
    -artifact_prefix="fuzz/findings/$target-" -print_final_stats=1 \
    2> >(tee "fuzz/target/$target.log" | grep -vE --line-buffered "$chatter" >&2)
}

# Every n-th of what covers the same when all are too many.
minimise() {
  local target=$1 merged
  merged=$(mktemp -d)
  "$built/$target" -merge=1 "${limits[@]}" "$merged" "fuzz/corpus/$target" "fuzz/target/corpus/$target" 2>/dev/null
  echo "fuzz: $target: $(find "$merged" -type f | wc -l) files cover what is known"
  # The hand-written ones have names, the others digests.
  find "fuzz/corpus/$target" -regextype egrep -regex '.*/[0-9a-f]{40}' -delete
  find "$merged" -type f -size -2k | sort | awk -v most="$kept_files" \
    '{ files[NR] = $0 } END { step = NR > most ? NR / most : 1; for (i = 1; i <= NR; i += step) print files[int(i)] }' |
    xargs -I{} cp {} "fuzz/corpus/$target/"
  rm -r "$merged"
}

build
if [ "${1-}" = minimise ]; then
  for target in $(targets); do minimise "$target"; done
  exit
fi
seconds=${1:-60}
chosen=("${@:2}")
[ ${#chosen[@]} -gt 0 ] || mapfile -t chosen < <(targets)
for target in "${chosen[@]}"; do fuzz "$target" "$seconds"; done
