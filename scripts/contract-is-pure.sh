#!/usr/bin/env bash
# `contract` decides and does nothing else: neither a runtime nor a socket may enter its tree.
set -euo pipefail

tree=$(cargo tree --package contract --edges normal --prefix none)
impure=$(grep -E '^(tokio|hyper|reqwest|redis|pingora|socket2|mio|runtime) ' <<<"$tree" | sort -u || true)
if [ -n "$impure" ]; then
    echo "contract must stay pure, but its dependencies bring: $impure" >&2
    exit 1
fi
