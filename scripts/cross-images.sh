#!/usr/bin/env bash
# cross-images.sh TARGET PROGRAMS REGISTRY VERSION: the images for another processor, REGISTRY/postern/…:VERSION-ARCH,
# out of this machine's own images of that version and the programs for it in the directory PROGRAMS. Prints their
# tag. Nothing is run, so no emulation is needed: beside its program an image holds only files that are the same
# everywhere.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$1 programs=$2 registry=$3 version=$4

case ${target%%-*} in
aarch64) architecture=arm64 ;;
x86_64) architecture=amd64 ;;
*) echo "cross-images.sh: no architecture for $target" >&2 && exit 1 ;;
esac
context=$(mktemp -d)
container=$(docker create "$registry/postern/sidecar:$version")
trap 'docker rm "$container" >/dev/null; rm -rf "$context"' EXIT

# The files of the root, with their owners.
for directory in etc var; do
    docker cp --quiet "$container:/$directory" - >"$context/$directory.tar"
done
for name in hosts hostname resolv.conf mtab; do
    # Of the engine, which adds them to any container.
    tar --delete --file "$context/etc.tar" "etc/$name" 2>/dev/null || true
done
cp LICENSE "$programs"/{auth-server,sidecar,postern-k8s} "$context/"
# The same last stages, with files in place of the stage that builds them.
sed -n '/^FROM scratch AS root$/,$p' deploy/Dockerfile |
    sed 's|^COPY --from=build /root-of-all /$|ADD etc.tar var.tar /|; s|^COPY --from=build /out/|COPY |' >"$context/Dockerfile"
! grep -- --from= "$context/Dockerfile"

for program in auth-server sidecar postern-k8s; do
    docker build --quiet --platform "linux/$architecture" --target "$program" --build-arg "VERSION=$version" \
        --build-arg REVISION="$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" \
        --tag "$registry/postern/$program:$version-$architecture" "$context" >/dev/null
done
echo "$version-$architecture"
