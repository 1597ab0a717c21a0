#!/usr/bin/env bash
# `make demo`: an unmodified service, the sidecar in front of it, the auth server – and a tour.
#
# Every call is shown as the curl line that makes it, with its response, and every response is checked.
# Afterwards all stays up until Ctrl-C; with ONCE=1 it ends, with exit code 0 if every check held.
# AUTH_PORT, AUTH_ADMIN_PORT, SERVICE_PORT, SIDECAR_PORT and SIDECAR_ADMIN_PORT choose ports; by
# default they are free ones.
set -euo pipefail
cd "$(dirname "$0")/../.."

failed=0

# ---- running things, and leaving none behind ----

# Starts a command in a process group of its own, so that everything it starts (cargo: compilers) can
# be ended with it. `$!` is the group.
in_background() {
    set -m
    "$@" </dev/null &
    set +m
}

# Starts a program with its output in files of its name.
start() {
    local name=$1
    shift
    in_background "$@" >"$work/$name.out" 2>"$work/$name.log"
}

clean_up() {
    trap '' INT TERM HUP PIPE # a second Ctrl-C must not cut this short
    local group
    for group in $(jobs -p); do kill -TERM -- "-$group" 2>/dev/null || true; done
    for group in $(jobs -p); do ended_within_5_seconds "$group" || kill -KILL -- "-$group" 2>/dev/null || true; done
    rm -rf "$work"
}

ended_within_5_seconds() {
    local tries=50
    while kill -0 -- "-$1" 2>/dev/null; do
        [ $((tries -= 1)) -gt 0 ] || return 1
        sleep 0.1
    done
}

give_up() {
    echo "demo: $1" >&2
    exit 1
}

# ---- waiting on what is, not on time ----

# The address that a program printed after "PREFIX ".
address() {
    local name=$1 prefix=$2 program=$3 found
    for _ in {1..300}; do
        found=$(sed -n "s/^$prefix //p" "$work/$name.out")
        if [ -n "$found" ]; then
            echo "$found"
            return
        fi
        kill -0 "$program" 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/$name.log" >&2
    give_up "$name did not start"
}

ready() {
    local name=$1 admin=$2
    for _ in {1..300}; do
        curl -fs -o /dev/null "http://$admin/readyz" && return
        sleep 0.1
    done
    curl -s "http://$admin/readyz" >&2 || true
    cat "$work/$name.log" >&2
    give_up "$name is not ready"
}

# ---- showing and checking ----

# Python without its traceback at a Ctrl-C: that ends this script.
python() {
    (trap '' INT && exec python3 "$@")
}

step() {
    printf '\n── %s\n' "$1"
}

# Shows a curl line, runs it, shows the response with its tokens shortened.
call() {
    printf '$ %s\n' "$1"
    eval "$1 --silent --show-error" >"$work/answer" || give_up "curl failed"
    sed '/^\r$/,$d' "$work/answer" | tr -d '\r' >"$work/head"
    sed '1,/^\r$/d' "$work/answer" >"$work/body"
    grep -iE '^(HTTP|WWW-Authenticate)' "$work/head"
    { python -m json.tool --no-ensure-ascii "$work/body" 2>/dev/null || cat "$work/body"; } |
        sed -E 's/(eyJ[A-Za-z0-9_-]{12})[A-Za-z0-9_.-]+/\1…/g'
}

# Shows `sidecar explain` of a request with the tampered token.
explain() {
    printf '$ sidecar explain %s -H @- <<<"Authorization: Bearer $TAMPERED"\n' "$1"
    "$target/debug/sidecar" explain "$1" -H @- --admin-listen "$sidecar_admin" \
        <<<"Authorization: Bearer $TAMPERED" | tee "$work/body" | python -c '
import sys, textwrap
for line in sys.stdin:
    print(textwrap.fill(line.rstrip(), 110, subsequent_indent=10 * " ", break_long_words=False))'
}

status() {
    sed -n '1s/^[^ ]* \([0-9]*\).*/\1/p' "$work/head"
}

# A member of the response's JSON: `member data.reason`.
member() {
    python - "$work/body" "$1" <<'END'
import json, sys
try:
    found = json.load(open(sys.argv[1]))
    for name in sys.argv[2].split("."):
        found = found[name]
    print(found)
except (ValueError, KeyError, TypeError):
    print("(absent)")
END
}

expect() {
    local what=$1 expected=$2 actual=$3
    if [ "$actual" = "$expected" ]; then
        echo "  ✓ $what"
    else
        echo "  ✗ $what: expected \"$expected\", got \"$actual\""
        failed=1
    fi
}

# The same token with another user in it; the signature is left as it was.
with_another_user() {
    python - "$1" <<'END'
import base64, json, sys
header, payload, signature = sys.argv[1].split(".")
claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
claims.update(userId="0", username="root", nickName="root")
payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
print(f"{header}.{payload}.{signature}")
END
}

# ---- the tour ----

build() {
    echo "Building both programs (quick profile): some 8 minutes on two cores the first time, seconds afterwards."
    in_background cargo build --workspace --bins
    wait $! || give_up "the build failed"
    target=$(cargo metadata --format-version 1 --no-deps |
        python -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
}

start_everything() {
    # A key signs for 30 seconds, so that its rotation can be watched; a longer lifetime needs slower ones.
    start auth-server "$target/debug/auth-server" dev \
        --listen "127.0.0.1:${AUTH_PORT:-0}" --admin-listen "127.0.0.1:${AUTH_ADMIN_PORT:-0}" \
        --token-lifetime 15m --rotate-every 30s
    auth=$(address auth-server "listening on" $!)
    auth_admin=$(address auth-server "admin listening on" $!)

    start service python3 deploy/demo/python/service.py "${SERVICE_PORT:-0}" "http://$auth"
    service=$(address service "listening on" $!)

    cat >"$work/rules.toml" <<'END'
[[rule]]
name = "reports"
paths = ["/reports/**"]
claims = { "/roles" = ["admin"] }
END
    ready auth-server "$auth_admin"
    start sidecar "$target/debug/sidecar" serve \
        --listen "127.0.0.1:${SIDECAR_PORT:-0}" --admin-listen "127.0.0.1:${SIDECAR_ADMIN_PORT:-0}" \
        --auth-server "http://$auth/auth" --signing-type ecdsa --app-id demo --app-secret demo \
        --upstream "http://$service" --config "$work/rules.toml"
    sidecar=$(address sidecar "listening on" $!)
    sidecar_admin=$(address sidecar "admin listening on" $!)
    ready sidecar "$sidecar_admin"
}

# A second sidecar of the service, which verifies proofs: its URL has to be known before it starts.
start_bound() {
    bound=127.0.0.1:$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    start bound "$target/debug/sidecar" serve --listen "$bound" --admin-listen 127.0.0.1:0 \
        --auth-server "http://$auth/auth" --signing-type ecdsa --app-id demo --app-secret demo \
        --upstream "http://$service" --resource "http://$bound"
    ready bound "$(address bound "admin listening on" $!)"
}

show_everything() {
    cat <<END

   client ──1──> auth server   http://$auth/auth
      └────2──> sidecar       http://$sidecar
                   ├──3──> auth server
                   └──4──> service   http://$service

   1  a token           3  each minute: the keys that verify it
   2  a call with it    4  the same call with the verified user: the service does nothing about tokens

   In a browser   http://$auth/auth/dev/   to make a token by hand
                  http://$sidecar_admin/           the sidecar: readiness, and the settings in effect
END
}

# A token with these claims; nothing else is needed for one.
token() {
    printf "$ curl -s http://%s/auth/dev/token -d '%s'\\n" "$auth" "$1"
    curl -sS "http://$auth/auth/dev/token" -d "$1" >"$work/body" || give_up "curl failed"
    TOKEN=$(member access_token)
    echo "TOKEN=${TOKEN:0:15}…"
}

# The key that signs at present.
signing_key() {
    token "$1" >/dev/null
    python - "$TOKEN" <<'END'
import base64, json, sys
header = sys.argv[1].split(".")[0]
print(json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))["kid"])
END
}

ada_with_role='{"userId": "7", "username": "ada", "roles": ["admin"]}'

walk() {
    step "1  A call without a token is rejected"
    call "curl -i http://$sidecar/orders/42"
    expect "401" 401 "$(status)"
    expect "the reason is given" token_missing "$(member data.reason)"

    step "2  A token for Ada"
    token '{"userId": "7", "username": "ada"}'

    step "3  The same call with the token passes; the service gets the user"
    call "curl -i http://$sidecar/orders/42 -H \"Authorization: Bearer \$TOKEN\""
    expect "200" 200 "$(status)"
    expect "the service got the user" ada "$(member user.account)"

    step "4  Who am I? The sidecar responds itself"
    call "curl -i http://$sidecar/current/user/details -H \"Authorization: Bearer \$TOKEN\""
    expect "200" 200 "$(status)"
    expect "the same user" ada "$(member data.account)"

    step "5  A made-up user header is replaced, and so is its look-alike"
    call "curl -i http://$sidecar/orders/42 -H \"Authorization: Bearer \$TOKEN\" -H 'X-Current-User: {\"account\": \"root\"}' -H 'X_Current_User: {\"account\": \"root\"}'"
    expect "the service got the user of the token" ada "$(member user.account)"
    expect "nothing of the made-up user arrived" 0 "$(grep -c root "$work/body" || true)"

    step "6  A rule wants the role admin below /reports: Ada is rejected"
    call "curl -i http://$sidecar/reports/7 -H \"Authorization: Bearer \$TOKEN\""
    expect "403" 403 "$(status)"
    token "$ada_with_role"
    call "curl -i http://$sidecar/reports/7 -H \"Authorization: Bearer \$TOKEN\""
    expect "200 with the role" 200 "$(status)"

    step "7  A token whose user was changed (TAMPERED=…) is rejected; sidecar explain gives the reason"
    TAMPERED=$(with_another_user "$TOKEN")
    call "curl -i http://$sidecar/orders/42 -H \"Authorization: Bearer \$TAMPERED\""
    expect "401" 401 "$(status)"
    explain "/orders/42"
    expect "it names the check that failed" 1 "$(grep -c '✗ signature' "$work/body")"

    step "8  A token that is bound to a key of its client (DPoP) is worth nothing to a thief"
    start_bound
    KEY=$work/client.pem
    export KEY
    local login=http://$auth/auth/oauth/jwt/token
    call "curl -i $login -H 'Content-Type: application/json' -d '{\"username\": \"ada\", \"password\": \"x\"}' -H \"DPoP: \$(deploy/demo/proof.sh \$KEY POST $login)\""
    BOUND=$(member data.access_token)
    call "curl -i http://$bound/orders/42 -H \"Authorization: DPoP \$BOUND\" -H \"DPoP: \$(deploy/demo/proof.sh \$KEY GET http://$bound/orders/42 \$BOUND)\""
    expect "200 with a proof" 200 "$(status)"
    call "curl -i http://$bound/orders/42 -H \"Authorization: Bearer \$BOUND\""
    expect "401 without" token_bound "$(member data.reason)"

    step "9  The auth server changes its key; tokens of both keys pass meanwhile"
    rotate
}

# Calls with an old and a fresh token until another key signs, and once more afterwards.
rotate() {
    local old=$TOKEN key next calls=0 rejected=0 code bearer
    key=$(signing_key '{}')
    next=$key
    echo "  calling until the next key signs, up to 30 seconds …"
    for _ in {1..300}; do
        next=$(signing_key '{}')
        token '{}' >/dev/null
        for bearer in "$old" "$TOKEN"; do
            code=$(curl -s -o /dev/null -w '%{http_code}' "http://$sidecar/orders/42" -H "Authorization: Bearer $bearer")
            calls=$((calls + 1))
            [ "$code" = 200 ] || rejected=$((rejected + 1))
        done
        [ "$next" = "$key" ] || break
        sleep 0.2
    done
    echo "  $calls calls while the key changed from ${key:0:8}… to ${next:0:8}…"
    expect "another key signs" yes "$([ "$next" = "$key" ] || echo yes)"
    expect "no call was rejected" 0 "$rejected"
}

main() {
    local tool
    for tool in cargo curl openssl python3; do
        command -v "$tool" >/dev/null || give_up "$tool is missing: install it and run this again"
    done
    # Neither a setting nor a proxy of this shell may change what the tour shows.
    unset "${!POSTERN_@}"
    export no_proxy=127.0.0.1 NO_PROXY=127.0.0.1

    trap '' INT TERM HUP PIPE # until the directory is made and its name is known
    work=$(mktemp -d "${TMPDIR:-/tmp}/postern-demo.XXXXXX")
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP PIPE

    build
    start_everything
    show_everything
    walk

    echo
    if [ "$failed" = 0 ]; then echo "Every check held."; else echo "Some checks FAILED."; fi
    [ "${ONCE:-}" != 1 ] || exit "$failed"

    trap 'exit 0' INT TERM
    show_everything
    token "$ada_with_role" >/dev/null
    cat <<END

   For another terminal, with a token of Ada and the role admin, which is valid for 15 minutes:

TOKEN=$TOKEN
curl -i http://$sidecar/reports/7 -H "Authorization: Bearer \$TOKEN"

Ctrl-C stops everything.
END
    wait -n
    give_up "one of the programs ended by itself"
}

main
