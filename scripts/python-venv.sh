#!/usr/bin/env bash
# Makes the Python environment in which others' programs play the other side of the interop tests.
set -euo pipefail
venv=$1

# A virtual environment breaks when the Python it was made from is replaced: ask it, do not look at it.
"$venv/bin/python" -c 'import jwt, cryptography, grpc, websockets' 2>/dev/null && exit 0

python3 -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check \
    'PyJWT[crypto]>=2.10,<3' 'grpcio>=1.70,<2' 'websockets>=14,<17'
