#!/usr/bin/env bash
# fuzz.sh SECONDS: runs each fuzz target for so long, on the stable toolchain.
#
# `cargo fuzz` wants nightly for the sanitizers; the product has no unsafe code for them to look at. The
# coverage counters that libFuzzer steers by are stable code generation flags. What is found new goes
# into fuzz/corpus, a finding into fuzz/findings.
set -euo pipefail
seconds=${1:-60}
cd "$(dirname "$0")/.."
host=$(rustc -vV | sed -n 's/^host: //p')
counters="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares"
# --target: build scripts and macros run on this machine and are not instrumented.
RUSTFLAGS="${counters//$'\n'/ } --cfg fuzzing" \
  cargo build --release --manifest-path fuzz/Cargo.toml --target "$host"
mkdir -p fuzz/findings
for target in token path; do
  echo "fuzz: $target for $seconds s"
  "fuzz/target/$host/release/$target" "fuzz/corpus/$target" \
    -max_total_time="$seconds" -max_len=4096 -artifact_prefix="fuzz/findings/$target-" \
    -print_final_stats=1 -verbosity=0
done
