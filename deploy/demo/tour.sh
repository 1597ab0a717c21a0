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
    { python3 -m json.tool --no-ensure-ascii "$work/body" 2>/dev/null || cat "$work/body"; } |
        sed -E 's/(eyJ[A-Za-z0-9_-]{12})[A-Za-z0-9_.-]+/\1…/g'
}

# Shows `sidecar explain` of a request with the tampered token.
explain() {
    printf '$ sidecar explain %s -H @- <<<"Authorization: Bearer $TAMPERED"\n' "$1"
    "$target/debug/sidecar" explain "$1" -H @- --admin-listen "$sidecar_admin" \
        <<<"Authorization: Bearer $TAMPERED" | tee "$work/body" | cut -c -160
}

status() {
    sed -n '1s/^[^ ]* \([0-9]*\).*/\1/p' "$work/head"
}

# A member of the response's JSON: `member data.reason`.
member() {
    python3 - "$work/body" "$1" <<'END'
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
    python3 - "$1" <<'END'
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
    # The quick profile: a release build takes several times as long and shows the same tour.
    in_background cargo build --workspace --bins
    wait $! || give_up "the build failed"
    target=$(cargo metadata --format-version 1 --no-deps |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
}

start_everything() {
    start auth-server "$target/debug/auth-server" serve \
        --listen "127.0.0.1:${AUTH_PORT:-0}" --admin-listen "127.0.0.1:${AUTH_ADMIN_PORT:-0}" \
        --store "file:$work/keys" --issuer postern-demo \
        --lame-duck 0
    auth=$(address auth-server "listening on" $!)
    auth_admin=$(address auth-server "admin listening on" $!)

    start service python3 deploy/demo/python/service.py "${SERVICE_PORT:-0}" "http://$auth"
    service=$(address service "listening on" $!)

    # No application is registered, so the auth server accepts any id with any secret.
    (umask 077 && echo any-secret >"$work/app-secret")
    ready auth-server "$auth_admin"
    start sidecar "$target/debug/sidecar" serve \
        --listen "127.0.0.1:${SIDECAR_PORT:-0}" --admin-listen "127.0.0.1:${SIDECAR_ADMIN_PORT:-0}" \
        --upstream "http://$service" --auth-server "http://$auth/auth" --issuer postern-demo \
        --app-name orders --app-id orders --app-secret-file "$work/app-secret" \
        --lame-duck 0
    sidecar=$(address sidecar "listening on" $!)
    sidecar_admin=$(address sidecar "admin listening on" $!)
    ready sidecar "$sidecar_admin"
}

show_everything() {
    cat <<END

  auth server   http://$auth/auth      admin http://$auth_admin
  sidecar       http://$sidecar/orders    admin http://$sidecar_admin
  service       http://$service    (knows nothing of authentication)

  In a browser
  status page   http://$sidecar_admin/
END
}

walk() {
    step "1  A call without a token is rejected"
    call "curl -i http://$sidecar/orders/42"
    expect "401" 401 "$(status)"
    expect "the reason is given" token_missing "$(member data.reason)"

    step "2  Log in (the built-in user: any name and password will do)"
    call "curl -i http://$auth/auth/oauth/jwt/token -H 'Content-Type: application/json' -d '{\"username\": \"ada\", \"password\": \"lovelace\"}'"
    expect "200" 200 "$(status)"
    TOKEN=$(member data.access_token)

    step "3  The same call with the token (TOKEN=…) passes; the service gets the user"
    call "curl -i http://$sidecar/orders/42 -H \"Authorization: Bearer \$TOKEN\""
    expect "200" 200 "$(status)"
    expect "the service saw the path as it was sent" /orders/42 "$(member path)"
    local account
    account=$(member user.account)
    expect "the service got a user" yes "$([ "$account" = "(absent)" ] || echo yes)"

    step "4  Who am I? The sidecar responds itself"
    call "curl -i http://$sidecar/orders/current/user/details -H \"Authorization: Bearer \$TOKEN\""
    expect "200" 200 "$(status)"
    expect "the same user" "$account" "$(member data.account)"

    step "5  A made-up user header is replaced, and so is its look-alike"
    call "curl -i http://$sidecar/orders/42 -H \"Authorization: Bearer \$TOKEN\" -H 'X-Current-User: {\"account\": \"root\"}' -H 'X_Current_User: {\"account\": \"root\"}'"
    expect "200" 200 "$(status)"
    expect "the service got the user of the token" "$account" "$(member user.account)"
    expect "nothing of the made-up user arrived" 0 "$(grep -c root "$work/body" || true)"

    step "6  A token whose user was changed (TAMPERED=…) is rejected, with the reason"
    TAMPERED=$(with_another_user "$TOKEN")
    call "curl -i http://$sidecar/orders/42 -H \"Authorization: Bearer \$TAMPERED\""
    expect "401" 401 "$(status)"
    expect "the reason is given" token_signature "$(member data.reason)"

    step "7  Why? sidecar explain shows every check (the token comes from standard input)"
    explain "/orders/42"
    expect "it names the check that failed" 1 "$(grep -c '✗ signature' "$work/body")"

    step "8  The same, and more, in a browser: the status page"
    expect "the status page lists the rejection" 1 "$(curl -s "http://$sidecar_admin/" | grep -c 'reason=&quot;token_signature&quot;')"
}

main() {
    local tool
    for tool in cargo curl python3; do
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
    printf '\n  TOKEN=%s\n\nCtrl-C stops everything.\n' "$TOKEN"
    wait -n
    give_up "one of the programs ended by itself"
}

main
