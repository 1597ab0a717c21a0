#!/usr/bin/env bash
# `wire` decides and does nothing else: neither a runtime nor a socket may enter its tree.
set -euo pipefail

tree=$(cargo tree --package wire --edges normal --prefix none)
impure=$(grep -E '^(tokio|hyper|reqwest|redis|pingora|socket2|mio|runtime) ' <<<"$tree" | sort -u || true)
if [ -n "$impure" ]; then
    echo "wire must stay pure, but its dependencies bring: $impure" >&2
    exit 1
fi
