//! Key strings and JWK Sets, on any bytes that a key server could send.
//!
//! The first byte selects the format. A parsed key is a public key, or in hmac mode a secret of
//! full length, and verifies no unsigned token.

#![no_main]

use http::{HeaderMap, HeaderValue, header};
use libfuzzer_sys::fuzz_target;
use postern_token::keys::signing_type::SigningType;
use postern_token::keys::{Algorithm, KeySet, VerificationKey};
use postern_token::policy::VerificationPolicy;
use postern_token::sources::bearer;

const ALLOWED: [Algorithm; 4] = [
    Algorithm::RS256,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// `{"alg":"RS256"}`, claims without an expiry, 64 zero bytes.
const UNSIGNED: &str = concat!(
    "Bearer eyJhbGciOiJSUzI1NiJ9.eyJ1c2VybmFtZSI6ImEiLCJ1c2VySWQiOiIxIn0.",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
);

fn parsed(data: &[u8]) -> Option<KeySet> {
    let (kind, rest) = data.split_first()?;
    let text = || std::str::from_utf8(rest).ok();
    let one = |signing_type| {
        VerificationKey::parse(signing_type, text()?)
            .ok()
            .map(KeySet::nameless)
    };
    match kind % 5 {
        0 => one(SigningType::Rsa),
        1 => one(SigningType::Ecdsa),
        2 => one(SigningType::Hmac),
        3 => KeySet::from_file(rest, &ALLOWED).ok(),
        _ => KeySet::from_jwks(rest, &ALLOWED).ok(),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(keys) = parsed(data) else { return };
    assert!(!keys.keys().is_empty(), "a key set holds a key");
    for key in keys.keys() {
        let jwk = key.to_jwk();
        assert_eq!(
            jwk.is_none(),
            key.algorithm() == Algorithm::HS256,
            "only a secret is not shown"
        );
        let json = serde_json::to_string(&jwk).expect("a JWK is JSON");
        assert!(!json.contains("\"d\":"), "the public half only");
    }
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, HeaderValue::from_static(UNSIGNED));
    let token = bearer::from_headers(&headers, 8192, true)
        .expect("well formed")
        .expect("there");
    let policy = VerificationPolicy {
        leeway_seconds: 30,
        accept_no_expiry: true,
        ..VerificationPolicy::default()
    };
    assert!(policy.verify_at(&keys, token, 0).is_err());
});
