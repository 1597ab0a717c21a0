#!/usr/bin/env bash
# release.sh DIRECTORY: writes a release: the images, their static programs, lists of components, rendered
# manifests, the chart, where all of it comes from, and checksums.
#
#   REGISTRY=registry.example.com                                  the images' names begin with it
#   TARGETS="x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu"   by default the machine's own
#
# An engine builds the images of this machine. Another target is cross-compiled, which needs its standard library
# (`rustup target add`) and its C compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
host=$(rustc -vV | sed -n 's/^host: //p')
targets=${TARGETS:-$host}
registry=${REGISTRY:-localhost}
programs=(auth-server sidecar postern-k8s)

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

# Puts the programs of this machine's images into a directory: a binary is the one that was tried as an image.
take_out_of_images() {
    local directory=$1 program container
    for program in "${programs[@]}"; do
        container=$(docker create "$registry/postern/$program:$version")
        docker cp "$container:/$program" "$directory/" >/dev/null
        docker rm "$container" >/dev/null
    done
}

cross_compile() {
    local target=$1 linker
    linker=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$target")_LINKER
    export "$linker=${target%%-*}-linux-gnu-gcc"
    RUSTFLAGS="-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs" cargo build --locked --release --target "$target" \
        "${programs[@]/#/--package=}"
}

# The same input gives the same archive: names, owners and times are fixed.
archive() {
    local name=$1 from=$2
    local staged=$out/$name
    mkdir -p "$staged"
    cp "${programs[@]/#/$from/}" LICENSE README.md CHANGELOG.md "$staged/"
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" \
        -C "$out" -c "$name" | gzip -n >"$out/$name.tar.gz"
    rm -r "$staged"
}

save_images() {
    local name=$1 tag=$2 images
    images=("${programs[@]/#/$registry/postern/}")
    docker save "${images[@]/%/:$tag}" | gzip -n >"$out/$name-images.tar.gz"
}

for tool in docker kubectl helm; do
    command -v "$tool" >/dev/null || fail "$tool is missing"
done
for target in $targets; do
    can_build "$target"
done
make --no-print-directory images REGISTRY="$registry" VERSION="$version"
mkdir -p "$out"
for target in $targets; do
    name=postern-$version-${target%%-*}-linux
    if [ "$target" = "$host" ]; then
        built=$(mktemp -d)
        take_out_of_images "$built"
        archive "$name" "$built"
        rm -r "$built"
        save_images "$name" "$version"
    else
        built=${CARGO_TARGET_DIR:-target}/$target/release
        cross_compile "$target"
        archive "$name" "$built"
        tag=$(scripts/cross-images.sh "$target" "$built" "$registry" "$version")
        save_images "$name" "$tag"
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
TARGETS=$targets REGISTRY=$registry scripts/provenance.py "$out" >"$statement"
install -m 0644 "$statement" "$out/provenance-$version.json"
rm "$statement"

(cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
cat "$out/SHA256SUMS"
