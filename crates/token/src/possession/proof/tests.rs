//! The examples of the RFCs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use token_corpus::proof_rows::{ProofRow, ProofSetting};
use token_corpus::token_forge::Forge;

use super::*;
use crate::possession::parse_digest;

const NOW: i64 = 1_800_000_000;
const URL: &str = "https://api.example/orders/1";
/// RFC 9449 §4.1 and §7.1.
const TOKEN_PROOF: &str = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In19.eyJqdGkiOiItQndDM0VTYzZhY2MybFRjIiwiaHRtIjoiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW1wbGUuY29tL3Rva2VuIiwiaWF0IjoxNTYyMjYyNjE2fQ.2-GxA6T8lP4vfrg8v-FdWP0A0zdrj8igiMLvqRMUvwnQg4PtFLbdLXiOSsX0x7NVY-FNyJK70nfbV37xRZT3Lg";
const RESOURCE_PROOF: &str = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In19.eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIjoiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90ZWN0ZWRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNFc05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9.2oW9RP35yRqzhrtNP86L-Ey71EOptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA";
const RFC_TOKEN: &str = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU";
const RFC_THUMBPRINT: &str = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I";

fn request<'a>(
    method: &'a str,
    is_target: &'a dyn Fn(&NormalUrl) -> bool,
    token: Option<&'a Digest>,
    now: i64,
) -> ProofRequest<'a> {
    ProofRequest {
        method,
        is_target,
        token,
        nonces: None,
        now,
        leeway_seconds: 30,
    }
}

#[test]
fn rfc_9449_the_proofs_of_the_examples_are_valid() {
    let at_token = |url: &NormalUrl| url.origin == "https://server.example.com";
    let at_resource = |url: &NormalUrl| url.path == "/protectedresource";
    let token = sha256(RFC_TOKEN.as_bytes());
    for (proof, request) in [
        (TOKEN_PROOF, request("POST", &at_token, None, 1_562_262_616)),
        (
            RESOURCE_PROOF,
            request("GET", &at_resource, Some(&token), 1_562_262_618),
        ),
    ] {
        let proof = Proof::parse(proof.as_bytes()).unwrap();
        let verified = proof.verify(&request, &OnceLock::new());
        let verified = verified.unwrap();
        assert_eq!(Some(verified.key), parse_digest(RFC_THUMBPRINT));
    }
}

#[test]
fn rfc_7638_3_1_the_thumbprint_equals_the_example() {
    let jwk = serde_json::json!({"kty": "RSA", "e": "AQAB", "alg": "RS256", "kid": "2011-04-29",
        "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"});
    let jwk: Map = serde_json::from_value(jwk).unwrap();
    let expected = parse_digest("NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    assert_eq!(thumbprint(&jwk), expected);
}

/// Returns the request that a proof of a row is for.
const fn setting(token: &Digest) -> ProofSetting<'_> {
    ProofSetting {
        method: "GET",
        url: URL,
        token,
        now: NOW,
    }
}

#[test]
fn a_key_outside_of_the_limits_is_rejected_before_it_is_used() {
    for bytes in [128, 255, 1025, 4096] {
        let modulus = URL_SAFE_NO_PAD.encode([&[0xc5][..], &vec![0xc5; bytes - 1]].concat());
        let header = format!(
            r#"{{"typ":"dpop+jwt","alg":"RS256","jwk":{{"kty":"RSA","e":"AQAB","n":"{modulus}"}}}}"#
        );
        let (header, payload) = (URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode("{}"));
        let field = format!("{header}.{payload}.AAAA");
        let proof = Proof::parse(field.as_bytes()).unwrap();
        let request = request("GET", &|_| true, None, NOW);
        let found = proof.verify(&request, &OnceLock::new());
        assert_eq!(found, Err(InvalidProof::Key), "{bytes}");
    }
}

#[test]
fn rfc_9449_8_a_proof_has_a_current_nonce_where_one_is_required() {
    let nonces = NonceKeys::parse("0123456789abcdef0123456789abcdef").unwrap();
    let forge = Forge::new(token_corpus::keys::Algorithm::ES256);
    let token = sha256(b"token");
    for (nonce, expected) in [
        (None, Err(InvalidProof::Nonce)),
        (Some(String::new()), Err(InvalidProof::Nonce)),
        (
            Some("of another server".to_owned()),
            Err(InvalidProof::Nonce),
        ),
        (Some(nonces.issue(NOW - 1000)), Err(InvalidProof::Nonce)),
        (Some(nonces.issue(NOW - 9)), Ok(())),
    ] {
        let row = ProofRow::changed("id", &serde_json::json!({ "nonce": nonce }));
        let field = row.field(&forge, setting(&token));
        let proof = Proof::parse(&field).unwrap();
        let request = ProofRequest {
            nonces: Some(&nonces),
            ..request("GET", &|_| true, Some(&token), NOW)
        };
        let found = proof.verify(&request, &OnceLock::new());
        let found = found.map(drop);
        assert_eq!(found, expected, "{nonce:?}");
    }
}
