#!/usr/bin/env bash
# Prints a DPoP proof (RFC 9449 §4.2) for one request: proof.sh KEY METHOD URL [TOKEN]
#
# KEY is a file with a P-256 key in PEM, which is made if it is missing. TOKEN is the access token that goes
# with the request; a token endpoint needs none. NONCE is the value of DPoP-Nonce, where a server sent one.
set -euo pipefail

if [ $# -lt 3 ]; then
    echo "usage: proof.sh KEY METHOD URL [TOKEN]" >&2
    exit 64
fi
key=$1 method=$2 url=$3 token=${4:-}

base64url() {
    openssl base64 -A | tr '+/' '-_' | tr -d '='
}

# Bytes of hexadecimal digits, with zeros in front up to 32 bytes.
bytes() {
    local digits
    digits=$(printf '%64s' "$1" | tr ' ' 0)
    # shellcheck disable=SC2001 # every two digits, which no expansion can do
    printf '%b' "$(sed 's/../\\x&/g' <<<"$digits")"
}

[ -e "$key" ] || (umask 077 && openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$key")
# The point is at the end of the public key: 32 bytes of x, 32 bytes of y.
x=$(openssl pkey -in "$key" -pubout -outform DER | tail -c 64 | head -c 32 | base64url)
y=$(openssl pkey -in "$key" -pubout -outform DER | tail -c 32 | base64url)
header='{"typ":"dpop+jwt","alg":"ES256","jwk":{"kty":"EC","crv":"P-256","x":"'$x'","y":"'$y'"}}'

claims='"jti":"'$(openssl rand -hex 16)'","htm":"'$method'","htu":"'$url'","iat":'$(date +%s)
[ -z "$token" ] || claims+=',"ath":"'$(printf %s "$token" | openssl dgst -sha256 -binary | base64url)'"'
[ -z "${NONCE:-}" ] || claims+=',"nonce":"'$NONCE'"'

signed=$(printf %s "$header" | base64url).$(printf %s "{$claims}" | base64url)
# openssl writes r and s in ASN.1, JWS wants their bytes (RFC 7518 §3.4).
mapfile -t numbers < <(printf %s "$signed" | openssl dgst -sha256 -sign "$key" -binary |
    openssl asn1parse -inform DER | sed -n 's/.*INTEGER *:\([0-9A-F]*\).*/\1/p')
echo "$signed.$({ bytes "${numbers[0]}" && bytes "${numbers[1]}"; } | base64url)"
