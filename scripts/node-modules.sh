#!/usr/bin/env bash
# Installs the issuers of the interop tests that run on Node, at the versions of the lock file.
set -euo pipefail
cd "$(dirname "$0")/../tests/interop"
installed=node_modules/.package-lock.json

[ "$installed" -nt package-lock.json ] && exit 0
if ! command -v npm >/dev/null; then
    echo "SKIP the issuers on Node (npm) – apt-get install npm"
    [ "${CI:-}" != true ]
    exit
fi
npm ci --silent --no-audit --no-fund --ignore-scripts
touch "$installed"
