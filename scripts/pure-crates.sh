#!/usr/bin/env bash
# `http`, `token` and `contract` decide and do nothing else: neither a runtime nor a socket may enter
# their trees.
set -euo pipefail

for package in postern-http postern-token postern-contract; do
    tree=$(cargo tree --package "$package" --edges normal --prefix none)
    impure=$(grep -E '^(tokio|hyper|reqwest|redis|pingora|socket2|mio|postern-process) ' <<<"$tree" | sort -u || true)
    if [ -n "$impure" ]; then
        echo "$package must stay pure, but its dependencies bring: $impure" >&2
        exit 1
    fi
done
