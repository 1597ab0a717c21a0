//! A compact JWS: its parts, and its header.
//!
//! They are parsed here, because the rules are stricter than those of `jsonwebtoken` (duplicate
//! members, `crit`, required types), with no option to relax them.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::Algorithm;

use crate::invalid::InvalidToken;
use crate::keys::{KeyId, algorithms};
use crate::strict_json::{self, Map, Value};

/// Members that change the meaning of the token (RFC 7515 §4.1.11, RFC 7516 §4.1). Those that hold a key
/// or lead to one (`jku`, `jwk`, `x5u`, `x5c`, `x5t`) are never read: only configured keys count.
const REJECTED_HEADER_MEMBERS: [&str; 3] = ["crit", "zip", "enc"];
/// False for a payload that is not encoded (RFC 7797).
const ENCODED: &str = "b64";

/// Media types of a token, also of RFC 9068, and their full forms (§4); compared without regard to case
/// (RFC 7515 §4.1.9).
const TOKEN_TYPES: [&str; 4] = ["JWT", "application/jwt", "at+jwt", "application/at+jwt"];

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

/// The members of a header that decide.
pub(crate) struct Header {
    /// Compared with the key's, never used to choose.
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<KeyId>,
}

impl Header {
    pub(crate) fn parse(encoded: &str, check_type: CheckType) -> Result<Self, InvalidToken> {
        let members =
            strict_json::object(&decode(encoded)?).map_err(|_| InvalidToken::Malformed)?;
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
    let is_encoded = members
        .get(ENCODED)
        .is_none_or(|it| *it == Value::Bool(true));
    let mut rejected = REJECTED_HEADER_MEMBERS.into_iter();
    rejected
        .find(|name| members.contains_key(*name))
        .or((!is_encoded).then_some(ENCODED))
}

pub(crate) fn check_type(members: &Map) -> Result<(), InvalidToken> {
    let accepted = match members.get("typ") {
        None => true,
        Some(Value::String(media_type)) => {
            let is_it = |name: &&str| media_type.eq_ignore_ascii_case(name);
            TOKEN_TYPES.iter().any(is_it)
        }
        Some(_) => false,
    };
    accepted.then_some(()).ok_or(InvalidToken::Header)
}

fn algorithm(members: &Map) -> Result<Algorithm, InvalidToken> {
    members
        .get("alg")
        .and_then(Value::as_str)
        .and_then(algorithms::parse)
        .ok_or(InvalidToken::Algorithm)
}

fn key_id(members: &Map) -> Result<Option<KeyId>, InvalidToken> {
    match members.get("kid") {
        None => Ok(None),
        // An empty name counts as missing.
        Some(Value::String(name)) if name.is_empty() => Ok(None),
        Some(Value::String(name)) => KeyId::new(name).map(Some).ok_or(InvalidToken::Header),
        Some(_) => Err(InvalidToken::Header),
    }
}
