#!/usr/bin/env bash
# Says which checks of `make test` cannot run on this machine. With CI=true each of them is a failure.
# `skips.sh full` ends at once where a tool is missing that only `make test-full` needs.
set -euo pipefail
skipped=0

if [ "${1:-}" = full ]; then
    missing=0
    needs() {
        "${@:3}" >/dev/null 2>&1 && return
        echo "MISSING for make test-full: $1 – $2"
        missing=1
    }
    engine() { command -v dockerd || docker info; }
    needs "a Docker engine" "apt-get install docker.io iptables" engine
    needs "docker-compose 1.29" "apt-get install docker-compose" command -v docker-compose
    needs "kubectl" "scripts/ensure-kubectl.sh DIRECTORY" kubectl kustomize k8s/overlays/dev
    needs "helm" "scripts/ensure-kubectl.sh DIRECTORY" helm template k8s/chart --set webhook.certificate.issuer=any,authServer.users=builtin
    needs "wrk" "make bench-peers" command -v wrk
    needs "systemd-analyze" "apt-get install systemd" command -v systemd-analyze
    needs "pytest, kubernetes-validate" "make venv" \
        "${POSTERN_TEST_PYTHON:-python3}" -c 'import pytest, yaml, kubernetes_validate'
    needs "cel-js (npm)" "make venv" test -d tests/interop/node_modules/@marcbachmann/cel-js
    exit $missing
fi

skip() {
    echo "SKIP $1 – $2"
    skipped=1
}

cargo deny --version >/dev/null 2>&1 ||
    skip "dependency policy (cargo-deny)" "cargo install --locked cargo-deny"
command -v redis-server >/dev/null ||
    skip "Redis key store tests (redis-server)" "apt-get install redis-server"
command -v rnacos >/dev/null || [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/rnacos" ] ||
    skip "Nacos registry tests (rnacos)" "cargo install --locked rnacos"
"${POSTERN_TEST_PYTHON:-python3}" -c 'import jwt, cryptography' 2>/dev/null ||
    skip "PyJWT interop tests (PyJWT, cryptography)" "make venv"

"${POSTERN_TEST_PYTHON:-python3}" -c 'import grpc, websockets' 2>/dev/null ||
    skip "gRPC and WebSocket conformance (grpcio, websockets)" "make venv"
"${POSTERN_TEST_PYTHON:-python3}" -c 'import authlib, requests_oauthlib, requests_oauth2client' 2>/dev/null ||
    skip "OAuth conformance (authlib, requests-oauthlib, requests-oauth2client)" "make venv"
"${POSTERN_TEST_PYTHON:-python3}" -c 'import mcp, fastmcp' 2>/dev/null ||
    skip "MCP clients and servers (mcp, fastmcp)" "make venv"
for package in oidc-provider openid-client oauth4webapi express-oauth2-jwt-bearer @modelcontextprotocol/sdk; do
    [ -d "tests/interop/node_modules/$package" ] || skip "tests with $package (npm)" "make venv"
done
[ -d /usr/share/gocode/src/google.golang.org/grpc ] ||
    skip "gRPC conformance (grpc-go)" "apt-get install golang-google-grpc-dev"
[ -d /usr/share/gocode/src/golang.org/x/oauth2 ] ||
    skip "OAuth conformance (Go)" "apt-get install golang-golang-x-oauth2-dev"
[ -f /usr/share/java/google-oauth-client.jar ] ||
    skip "OAuth conformance (Java)" "apt-get install libgoogle-oauth-client-java"
gateways=$PATH:/usr/local/sbin:/usr/sbin:$(dirname "${POSTERN_TEST_PYTHON:-python3}")
for gateway in nginx haproxy envoy; do
    PATH=$gateways command -v "$gateway" >/dev/null || skip "certificates behind $gateway" "make bench-peers"
done
command -v caddy >/dev/null || skip "certificates behind caddy" "apt-get install caddy"
for tool in h2load nghttp; do
    command -v "$tool" >/dev/null || skip "HTTP/2 conformance ($tool)" "apt-get install nghttp2-client"
done
command -v prometheus >/dev/null || skip "the queries in Prometheus" "apt-get install prometheus"
command -v curl >/dev/null || skip "HTTP conformance (curl)" "apt-get install curl"

demo_service() {
    command -v "$1" >/dev/null || skip "the demo service in $2 ($1)" "apt-get install $3"
}
demo_service python3 Python python3
demo_service node Node nodejs
demo_service java Java default-jdk-headless
demo_service go Go golang-go
demo_service php PHP php-cli
{ command -v chromium && command -v chromedriver; } >/dev/null ||
    skip "browser tests (chromium, chromedriver)" "apt-get install chromium chromium-driver"
# A former version is not for CI to build.
[ -x "${POSTERN_FORMER_SIDECAR:-}" ] ||
    echo "SKIP a list at a former sidecar – make former-sidecar POSTERN_FORMER_SIDECAR=PATH"

if [ "$skipped" = 1 ] && [ "${CI:-}" = true ]; then
    echo "CI=true: nothing may be skipped" >&2
    exit 1
fi
