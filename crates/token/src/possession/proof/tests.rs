//! The rows of the table, and the examples of the RFCs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use token_corpus::proof_rows::{ProofRow, ProofSetting, ProofTable};
use token_corpus::token_forge::Forge;

use super::*;
use crate::invalid::InvalidToken;
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

/// Returns the verdict as the sidecar makes it, in the words of the table.
fn verdict(
    field: &[u8],
    bound_to: &Digest,
    token: &Digest,
    keys: &OnceLock<VerificationKey>,
) -> String {
    let is_target = |url: &NormalUrl| NormalUrl::parse(URL).as_ref() == Some(url);
    let request = request("GET", &is_target, Some(token), NOW);
    let verified = Proof::parse(field).and_then(|proof| {
        if proof.key() == bound_to {
            proof.verify(&request, keys)
        } else {
            Err(InvalidProof::OtherKey)
        }
    });
    match verified {
        Ok(_) => "accepted".to_owned(),
        Err(invalid) => format!("{:?}", InvalidToken::Proof(invalid)),
    }
}

/// Returns the reason of a row in the same words.
fn expected(reason: &str) -> String {
    let invalid = match reason {
        "401 proof_malformed" => InvalidProof::Malformed,
        "401 proof_header" => InvalidProof::Header,
        "401 proof_algorithm" => InvalidProof::Algorithm,
        "401 proof_key" => InvalidProof::Key,
        "401 proof_key_other" => InvalidProof::OtherKey,
        "401 proof_signature" => InvalidProof::Signature,
        "401 proof_claim" => InvalidProof::Claim,
        "401 proof_method" => InvalidProof::Method,
        "401 proof_target" => InvalidProof::Target,
        "401 proof_time" => InvalidProof::Time,
        "401 proof_token" => InvalidProof::Token,
        other => return other.to_owned(),
    };
    format!("{:?}", InvalidToken::Proof(invalid))
}

#[test]
fn each_row_of_the_table_has_its_verdict() {
    let token = sha256(b"token");
    let mut forge = Forge::new(token_corpus::keys::Algorithm::ES256);
    for algorithm in token_corpus::keys::Algorithm::VERIFIED {
        if algorithm.family() == token_corpus::keys::Family::Hmac {
            continue;
        }
        forge = forge.meant_for(algorithm);
        let bound_to = parse_digest(&forge.trusted().thumbprint()).unwrap();
        let keys = OnceLock::new();
        for row in ProofTable::load().unwrap().proof {
            let field = row.field(&forge, setting(&token));
            let found = verdict(&field, &bound_to, &token, &keys);
            let name = (algorithm.name(), &row.name);
            // An RSA key fits `RS256`, and states no ES384.
            let differs = algorithm.family() == token_corpus::keys::Family::Rsa
                && row.name == "an algorithm of another kind of key";
            assert!(
                found == expected(&row.expect) || differs,
                "{name:?}: {found}"
            );
        }
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
