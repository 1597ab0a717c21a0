#!/usr/bin/env bash
# words.sh [--count] [PATH…]: finds the words of scripts/words.txt in documents, comments and texts, as
# file:line, and fails on one. It fails on a function with a name of more than 60 characters too.
#
#   --count  the hits of each pattern in each tree as numbers
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1-}
[[ $mode != --* ]] || shift
text=$(mktemp)
trap 'rm -f "$text"' EXIT

git ls-files -z --cached --others --exclude-standard -- "$@" |
    grep -zE '\.(md|rs|sh|py|toml|ya?ml)$|(^|/)Makefile$' |
    while IFS= read -rd '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done |
    xargs -0r awk -f scripts/words.awk >"$text"

found=0
while IFS= read -r line; do
    [[ $line == *' => '* ]] || continue
    hits=$(grep -P "^[^:]*:\d+:.*?(?:${line% => *})" "$text") || continue
    found=1
    if [ "$mode" = --count ]; then
        trees=$(sed -E 's#[/:].*##' <<<"$hits" | sort | uniq -c | awk '{ printf "%s %s  ", $2, $1 }')
        echo "$trees| $line"
    else
        sed "s#\$# [${line//[&#\\]/.}]#" <<<"$hits"
    fi
done <scripts/words.txt

! git grep --untracked -nE '\b(fn|def) \w{61}' -- '*.rs' '*.py' || found=1
exit $found
