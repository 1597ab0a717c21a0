#!/usr/bin/env bash
# Makes the Python environment of the tests: others' programs that play the other side of the interop
# tests, and what checks manifests and containers.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
wanted=tests/requirements.txt
installed=$venv/requirements.txt

# A virtual environment breaks when the Python it was made from is replaced: run it to find out.
works() {
    "$venv/bin/python" -c 'import jwt, cryptography, grpc, websockets, authlib, requests_oauthlib, fastmcp, gunicorn, hypercorn' 2>/dev/null &&
        "$venv/bin/python" -c 'import pytest, yaml, kubernetes_validate' 2>/dev/null
}

cmp --silent "$wanted" "$installed" && works && exit 0

"$venv/bin/pip" --version >/dev/null 2>&1 || python3 -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$wanted"
works
cp "$wanted" "$installed"
