#!/usr/bin/env bash
# release.sh DIRECTORY: writes what a release has beside its images, for the targets that this machine builds:
# static binaries, lists of components, rendered manifests, the chart, where all of it comes from, and checksums.
#
#   TARGETS="x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu"   by default the machine's own
#   BUILT=DIR   takes the programs of the machine's own target from there, and builds nothing
#
# Another target needs its standard library (`rustup target add`) and its C compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
host=$(rustc -vV | sed -n 's/^host: //p')
targets=${TARGETS:-$host}
programs=(auth-server sidecar postern-k8s)
target_directory=${CARGO_TARGET_DIR:-target}

fail() {
    echo "release.sh: $1" >&2
    exit 1
}

# Finds out before the first long build.
can_build() {
    local target=$1
    [ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ] ||
        fail "no standard library for $target: rustup target add $target"
    [ "$target" = "$host" ] || command -v "${target%%-*}-linux-gnu-gcc" >/dev/null ||
        fail "no C compiler for $target: ${target%%-*}-linux-gnu-gcc"
}

build() {
    local target=$1 linker
    if [ "$target" != "$host" ]; then
        linker=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$target")_LINKER
        export "$linker=${target%%-*}-linux-gnu-gcc"
    fi
    RUSTFLAGS="-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs" cargo build --locked --release --target "$target" \
        "${programs[@]/#/--package=}"
}

# The same input gives the same archive: names, owners and times are fixed.
archive() {
    local target=$1 from=$2 name=postern-$version-${1%%-*}-linux
    local staged=$out/$name
    mkdir -p "$staged"
    cp "${programs[@]/#/$from/}" LICENSE README.md CHANGELOG.md "$staged/"
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" \
        -C "$out" -c "$name" | gzip -n >"$out/$name.tar.gz"
    rm -r "$staged"
}

for target in $targets; do
    can_build "$target"
done
mkdir -p "$out"
for target in $targets; do
    if [ "$target" = "$host" ] && [ -n "${BUILT-}" ]; then
        archive "$target" "$BUILT"
    else
        build "$target"
        archive "$target" "$target_directory/$target/release"
    fi
done

for program in "${programs[@]}"; do
    scripts/sbom.py "$program" >"$out/$program-$version.cdx.json"
done
for overlay in dev prod; do
    kubectl kustomize "k8s/overlays/$overlay" >"$out/postern-$version-$overlay.yaml"
done
helm lint --strict k8s/chart >/dev/null
helm package k8s/chart --version "$version" --app-version "$version" --destination "$out" >/dev/null

statement=$(mktemp)
TARGETS=$targets scripts/provenance.py "$out" >"$statement"
install -m 0644 "$statement" "$out/provenance-$version.json"
rm "$statement"

(cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
cat "$out/SHA256SUMS"
