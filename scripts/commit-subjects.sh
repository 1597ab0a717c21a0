#!/usr/bin/env bash
# commit-subjects.sh [RANGE]: the subjects of these commits, origin/main..HEAD by default, have the form of
# CONTRIBUTING.md: `area: what it does now`, at most 72 characters, no full stop.
set -euo pipefail
range=${1:-origin/main..HEAD}
max=72

git log --no-merges --format='%h %s' "$range" | awk -v max="$max" '
    { commit = $1; subject = substr($0, length(commit) + 2) }
    length(subject) > max { fail("has " length(subject) " characters, " max " at most") }
    subject !~ /^[a-z0-9.\/-]+(, [a-z0-9.\/-]+)*: [^ ]/ { fail("has no `area: `") }
    subject ~ /[.]$/ { fail("ends with a full stop") }
    function fail(why) { print commit ": " subject ": " why; failed = 1 }
    END { exit failed }'
