//! A compact JWS: its parts, and its header.
//!
//! The parts are parsed here, because the rules are stricter than those of `jsonwebtoken` (duplicate members,
//! `crit`, required types), with no option to relax them.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::Algorithm;

use crate::invalid::InvalidToken;
use crate::keys::{KeyId, algorithms};
use crate::strict_json::{self, Map, Value, member};

/// The member that names members which have to be understood. It is rejected with any value: RFC 7515 §4.1.11
/// requires a list of names that is not empty, so null does not mean an empty list.
const CRITICAL: &str = "crit";
/// Members that change the meaning of the token (RFC 7516 §4.1). Members that hold a key or lead to one
/// (`jku`, `jwk`, `x5u`, `x5c`, `x5t`) are never read: only configured keys count.
const REJECTED_HEADER_MEMBERS: [&str; 2] = ["zip", "enc"];
/// False for a payload that is not encoded (RFC 7797).
const ENCODED: &str = "b64";

/// Media types of a token, also of RFC 9068; compared without regard to case and to `application/` in
/// front. `JOSE` says that the token is in compact form (RFC 7515 §4.1.9), as SPIFFE's may.
const TOKEN_TYPES: [&str; 3] = ["jwt", "at+jwt", "jose"];

/// A check of `typ` in the members of a header.
pub(crate) type CheckType = fn(&Map) -> Result<(), InvalidToken>;

/// The three parts of a compact JWS (RFC 7515 §7.1), still encoded.
pub(crate) struct CompactToken<'a> {
    pub(crate) header: &'a str,
    pub(crate) payload: &'a str,
    pub(crate) signature: &'a str,
    /// The signed bytes: header, dot, payload.
    pub(crate) signed: &'a [u8],
}

impl<'a> CompactToken<'a> {
    pub(crate) fn split(token: &'a str) -> Result<Self, InvalidToken> {
        let (signed, signature) = token.rsplit_once('.').ok_or(InvalidToken::Malformed)?;
        let (header, payload) = signed.split_once('.').ok_or(InvalidToken::Malformed)?;
        // More than three parts, as the five of an encrypted token (RFC 7516 §7.1).
        if payload.contains('.') {
            return Err(InvalidToken::Malformed);
        }
        Ok(Self {
            header,
            payload,
            signature,
            signed: signed.as_bytes(),
        })
    }
}

/// Decodes base64url without padding and without stray bits (RFC 7515 §2).
pub(crate) fn decode(part: &str) -> Result<Vec<u8>, InvalidToken> {
    URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| InvalidToken::Malformed)
}

/// Decodes a part that holds a JSON object.
pub(crate) fn object(part: &str) -> Result<Map, InvalidToken> {
    strict_json::object(&decode(part)?).map_err(|_| InvalidToken::Malformed)
}

/// The members of a header that the verifier reads.
pub(crate) struct Header {
    /// The algorithm, which is compared with the key's, and never used to choose one.
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<KeyId>,
}

impl Header {
    pub(crate) fn parse(encoded: &str, check_type: CheckType) -> Result<Self, InvalidToken> {
        let members = object(encoded)?;
        if rejected_member(&members).is_some() {
            return Err(InvalidToken::Header);
        }
        check_type(&members)?;
        Ok(Self {
            key_id: key_id(&members)?,
            algorithm: algorithm(&members)?,
        })
    }
}

/// Returns the member for which a header is rejected.
pub(crate) fn rejected_member(members: &Map) -> Option<&'static str> {
    if members.contains_key(CRITICAL) {
        return Some(CRITICAL);
    }
    if !matches!(member(members, ENCODED), None | Some(Value::Bool(true))) {
        return Some(ENCODED);
    }
    REJECTED_HEADER_MEMBERS
        .into_iter()
        .find(|name| member(members, name).is_some())
}

pub(crate) fn check_type(members: &Map) -> Result<(), InvalidToken> {
    // `typ` is optional (RFC 7519 §5.1).
    match member(members, "typ") {
        Some(typ) if !is_type(typ, &TOKEN_TYPES) => Err(InvalidToken::Header),
        _ => Ok(()),
    }
}

/// Returns true if `typ` is one of these media types, with or without `application/` (RFC 7515 §4.1.9).
pub(crate) fn is_type(typ: &Value, expected: &[&str]) -> bool {
    let named = typ.as_str().unwrap_or_default().to_ascii_lowercase();
    let media_type = named.strip_prefix("application/").unwrap_or(&named);
    expected.contains(&media_type)
}

pub(crate) fn algorithm(members: &Map) -> Result<Algorithm, InvalidToken> {
    members
        .get("alg")
        .and_then(Value::as_str)
        .and_then(algorithms::parse)
        .ok_or(InvalidToken::Algorithm)
}

fn key_id(members: &Map) -> Result<Option<KeyId>, InvalidToken> {
    match member(members, "kid") {
        None => Ok(None),
        // An empty `kid` counts as missing.
        Some(Value::String(name)) if name.is_empty() => Ok(None),
        Some(Value::String(name)) => KeyId::new(name).map(Some).ok_or(InvalidToken::Header),
        Some(_) => Err(InvalidToken::Header),
    }
}
