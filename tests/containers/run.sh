#!/usr/bin/env bash
# `make containers`: builds the images from deploy/Dockerfile as it is, and tests the images and
# the compose stack. The cache keeps engine state, base images and the layer of the dependencies, so
# that a second run builds only changes; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/postern
mkdir -p "$cache"
source tests/containers/engine.sh
source tests/containers/bases.sh
source tests/containers/clients.sh

build_images() {
    # Its tag protects the layers of the build from being pruned.
    docker build --quiet --file deploy/Dockerfile --target build --tag localhost/postern/build:dev . >/dev/null
    VERSION=dev make --no-print-directory images
    # Removes the rest of earlier builds, in an engine of our own only.
    ! engine_is_own || docker image prune --force >/dev/null
}

main() {
    trap engine_stop EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    clients_prepare "$cache"
    engine_start "$cache"
    bases_prepare "$cache"
    build_images
    "${POSTERN_TEST_PYTHON:-python3}" -m pytest -rs -p no:cacheprovider --durations=5 tests/containers "$@"
}

main "$@"
