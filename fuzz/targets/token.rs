//! `Authorization` → token → claims → user, and a proof, on any bytes.
//!
//! The first byte selects the format: the value of the header field, or header and payload of a
//! token (separated by NUL). The latter is signed with the right key, so that the code behind the
//! signature check runs too.

#![no_main]

use std::sync::OnceLock;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, header};
use libfuzzer_sys::fuzz_target;
use postern_token::claims::user_details::CurrentUserDetails;
use postern_token::keys::signing_type::SigningType;
use postern_token::keys::{KeySet, VerificationKey};
use postern_token::policy::VerificationPolicy;
use postern_token::possession::proof::{Proof, ProofRequest};
use postern_token::sources::{bearer, cookie};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const NOW: i64 = 1_800_000_000;

fn signed(header: &[u8], payload: &[u8]) -> String {
    let input = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(payload)
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = hmac::sign(&key, input.as_bytes());
    format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn field(data: &[u8]) -> Option<(HeaderValue, bool)> {
    let (mode, rest) = data.split_first()?;
    if mode & 1 == 0 {
        return Some((HeaderValue::from_bytes(rest).ok()?, false));
    }
    let mut parts = rest.splitn(2, |&byte| byte == 0);
    let token = signed(parts.next()?, parts.next()?);
    Some((
        HeaderValue::from_str(&format!("Bearer {token}")).ok()?,
        true,
    ))
}

/// The same bytes as a proof: it is of no key that its sender has.
fn verify_proof(field: &[u8]) {
    let Ok(proof) = Proof::parse(field) else {
        return;
    };
    let request = ProofRequest {
        method: "GET",
        is_target: &|_| true,
        token: None,
        nonces: None,
        now: NOW,
        leeway_seconds: 30,
    };
    let verified = proof.verify(&request, &OnceLock::new());
    assert!(verified.is_err(), "a signature cannot be guessed");
}

fuzz_target!(|data: &[u8]| {
    let Some((value, is_signed)) = field(data) else {
        return;
    };
    verify_proof(value.as_bytes());
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, value.clone());
    headers.insert(header::COOKIE, value.clone());
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
    if let Ok(Some(_)) = cookie::token_of(&headers, "t", 8192) {
        assert!(cookie::cookies_without(&headers, "t").is_some());
    }
    let _ = bearer::from_websocket_protocol(&headers, 8192);
    let Ok(Some(token)) = bearer::from_headers(&headers, 8192, true) else {
        return;
    };
    let key = VerificationKey::parse(SigningType::Hmac, SECRET).expect("a secret");
    let policy = VerificationPolicy {
        leeway_seconds: 30,
        ..VerificationPolicy::default()
    };
    let Ok(claims) = policy.verify_at(&KeySet::nameless(key), token, NOW) else {
        return;
    };
    assert!(is_signed, "a signature cannot be guessed");
    let expiry = claims.expires_at.expect("an expiry is required");
    assert!(expiry > NOW - 31);
    let user = claims.into_user_details();
    let json = serde_json::to_string(&user).expect("a user is JSON");
    let again: CurrentUserDetails = serde_json::from_str(&json).expect("the same user");
    assert_eq!(user, again);
});
