#!/usr/bin/env bash
# Pingora builds zlib-ng, which needs cmake. Installs it where apt-get can, says what to do elsewhere.
set -euo pipefail

command -v cmake >/dev/null && exit 0

if ! command -v apt-get >/dev/null; then
    echo "cmake is missing: Pingora needs it to build. Install the package \`cmake\` and run this again." >&2
    exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    # Without a terminal no password can be typed: fail instead of waiting for one.
    as_root=(sudo)
    [ -t 0 ] || as_root+=(--non-interactive)
fi

echo "cmake is missing: installing it with apt-get"
# Lists that cannot be refreshed may still name a package that can be fetched.
"${as_root[@]}" apt-get update -q || true
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends cmake; then
    echo "cmake could not be installed: run \`apt-get install cmake\` as root and try again." >&2
    exit 1
fi
