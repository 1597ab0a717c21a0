//! DPoP proofs (RFC 9449): a signed statement of the client for one request.

use std::sync::OnceLock;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName};
use jsonwebtoken::Algorithm;
use postern_http::host::normal_url::NormalUrl;
use postern_http::only_field::only_field;

use super::nonces::NonceKeys;
use crate::compact::{self, CompactToken, decode, rejected_member};
use crate::digest::{Digest, sha256};
use crate::invalid::InvalidProof;
use crate::keys::VerificationKey;
use crate::keys::algorithms::ASYMMETRIC;
use crate::strict_json::{Map, Value, member};

/// The field of proofs (RFC 9449 §4.1).
pub const DPOP: HeaderName = HeaderName::from_static("dpop");
/// The media type of a proof.
const TYPE: &str = "dpop+jwt";
/// The members of JWKs that only a private key or a secret has (RFC 7518 §6).
const PRIVATE_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
/// Seconds for which a proof counts after its `iat`, and its `jti` is remembered.
pub const MAX_AGE: i64 = 60;

/// The request that a proof has to be for.
#[derive(Clone, Copy)]
pub struct ProofRequest<'a> {
    /// The method, byte for byte.
    pub method: &'a str,
    /// Returns true for a URL of the request.
    pub is_target: &'a dyn Fn(&NormalUrl) -> bool,
    /// The SHA-256 of the token with which the proof is sent; `None` at a token endpoint.
    pub token: Option<&'a Digest>,
    /// The keys of nonces, where proofs need one.
    pub nonces: Option<&'a NonceKeys>,
    /// Seconds since the epoch.
    pub now: i64,
    /// Seconds by which the client's clock may be ahead.
    pub leeway_seconds: u32,
}

/// A proof that can be read, and is not verified yet.
pub struct Proof<'p> {
    parts: CompactToken<'p>,
    algorithm: Algorithm,
    jwk: Value,
    /// The thumbprint of the key in the proof.
    key: Digest,
}

/// The beginning of the SHA-256 of a proof's key and `jti`. Only the holder of a key could make two proofs with
/// one id, and the second would not count.
pub type ProofId = [u8; 16];

/// A verified proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedProof {
    /// The thumbprint of the key that signed the proof.
    pub key: Digest,
    /// The name of the proof among the proofs of all keys.
    pub id: ProofId,
    /// `iat`.
    pub issued_at: i64,
}

impl<'p> Proof<'p> {
    /// Reads the one proof of a request (RFC 9449 §4.3 item 1); `None` without the field.
    ///
    /// # Errors
    /// [`InvalidProof::Repeated`], and the errors of [`Self::parse`].
    pub fn from_headers(headers: &'p HeaderMap) -> Result<Option<Self>, InvalidProof> {
        match only_field(headers, &DPOP) {
            Ok(Some(field)) => Self::parse(field.as_bytes()).map(Some),
            Ok(None) => Ok(None),
            Err(_) => Err(InvalidProof::Repeated),
        }
    }

    /// Reads the value of the field: items 2 to 5 and 7 of RFC 9449 §4.3.
    ///
    /// # Errors
    /// [`InvalidProof::Malformed`], [`InvalidProof::Header`], [`InvalidProof::Algorithm`],
    /// [`InvalidProof::Key`].
    pub fn parse(field: &'p [u8]) -> Result<Self, InvalidProof> {
        let text = str::from_utf8(field).map_err(|_| InvalidProof::Malformed)?;
        let parts = CompactToken::split(text).map_err(|_| InvalidProof::Malformed)?;
        let mut header = compact::object(parts.header).map_err(|_| InvalidProof::Malformed)?;
        let is_proof = member(&header, "typ").is_some_and(|typ| compact::is_type(typ, &[TYPE]));
        if !is_proof || rejected_member(&header).is_some() {
            return Err(InvalidProof::Header);
        }
        let algorithm = match compact::algorithm(&header) {
            Ok(algorithm) if ASYMMETRIC.contains(&algorithm) => algorithm,
            _ => return Err(InvalidProof::Algorithm),
        };
        let jwk = header.remove("jwk").ok_or(InvalidProof::Key)?;
        let members = jwk.as_object().ok_or(InvalidProof::Key)?;
        // Item 7 before any computation with the key.
        if PRIVATE_MEMBERS
            .iter()
            .filter_map(|name| members.get(*name))
            .any(|private| !is_absent(private))
        {
            return Err(InvalidProof::Key);
        }
        // The members are checked for each proof, although the key itself may be known already.
        if VerificationKey::check_jwk(members, algorithm).is_err() {
            return Err(InvalidProof::Key);
        }
        Ok(Self {
            key: thumbprint(members).ok_or(InvalidProof::Key)?,
            parts,
            algorithm,
            jwk,
        })
    }

    /// Returns the thumbprint of the key in the proof.
    #[must_use]
    pub const fn key(&self) -> &Digest {
        &self.key
    }

    /// Verifies the signature, and compares the claims with the request: items 6 and 8 to 11 of RFC
    /// 9449 §4.3. `known` keeps the key for the next proof: the caller passes one for each thumbprint.
    ///
    /// # Errors
    /// [`InvalidProof`].
    pub fn verify(
        &self,
        request: &ProofRequest<'_>,
        known: &OnceLock<VerificationKey>,
    ) -> Result<VerifiedProof, InvalidProof> {
        // A known key of another algorithm is not used: the proof names the algorithm, the key has to fit it.
        match known.get() {
            Some(key) if key.algorithm() == self.algorithm => self.check_signature(key)?,
            _ => {
                // `from_jwk` checks the size of the key before any computation with it.
                let key = VerificationKey::from_jwk(&self.jwk, &[self.algorithm])
                    .map_err(|_| InvalidProof::Key)?;
                self.check_signature(&key)?;
                // A race is harmless: both keys have the same thumbprint.
                let _ = known.set(key);
            }
        }
        self.check_claims(request)
    }

    fn check_signature(&self, key: &VerificationKey) -> Result<(), InvalidProof> {
        match decode(self.parts.signature) {
            Ok(signature) if key.verifies(self.parts.signed, &signature) => Ok(()),
            Ok(_) => Err(InvalidProof::Signature),
            Err(_) => Err(InvalidProof::Malformed),
        }
    }

    fn check_claims(&self, request: &ProofRequest<'_>) -> Result<VerifiedProof, InvalidProof> {
        let claims = compact::object(self.parts.payload).map_err(|_| InvalidProof::Malformed)?;
        let id = text(&claims, "jti")?;
        if text(&claims, "htm")? != request.method {
            return Err(InvalidProof::Method);
        }
        match NormalUrl::parse(text(&claims, "htu")?) {
            Some(target) if (request.is_target)(&target) => {}
            _ => return Err(InvalidProof::Target),
        }
        if let Some(token) = request.token
            && text(&claims, "ath")? != URL_SAFE_NO_PAD.encode(token)
        {
            return Err(InvalidProof::Token);
        }
        if let Some(keys) = request.nonces
            && !text(&claims, "nonce").is_ok_and(|nonce| keys.accept(nonce, request.now))
        {
            return Err(InvalidProof::Nonce);
        }
        let name = sha256([&self.key[..], id.as_bytes()].concat());
        Ok(VerifiedProof {
            key: self.key,
            id: name.first_chunk().copied().unwrap_or_default(),
            issued_at: issued_at(&claims, request)?,
        })
    }
}

/// Returns `iat`, compared with the window (RFC 9449 §4.3 item 11), once `exp` and `nbf` hold where a proof
/// has them (RFC 7519 §4.1.4, §4.1.5).
fn issued_at(claims: &Map, request: &ProofRequest<'_>) -> Result<i64, InvalidProof> {
    let issued_at = date(claims, "iat")?.ok_or(InvalidProof::Claim)?;
    let expires_at = date(claims, "exp")?.unwrap_or(i64::MAX);
    let not_before = date(claims, "nbf")?.unwrap_or(i64::MIN);
    let leeway = i64::from(request.leeway_seconds);
    let latest = request.now.saturating_add(leeway);
    // `MAX_AGE` leaves room for a late client; the leeway is for a clock that is ahead.
    let is_past =
        issued_at < request.now - MAX_AGE || request.now >= expires_at.saturating_add(leeway);
    if is_past || issued_at > latest || not_before > latest {
        return Err(InvalidProof::Time);
    }
    Ok(issued_at)
}

/// Returns a claim that is a time, in whole seconds.
fn date(claims: &Map, name: &str) -> Result<Option<i64>, InvalidProof> {
    match member(claims, name) {
        None => Ok(None),
        Some(Value::Number(number)) => match number.seconds(f64::floor) {
            None => Err(InvalidProof::Claim),
            seconds => Ok(seconds),
        },
        Some(_) => Err(InvalidProof::Claim),
    }
}

/// Returns a claim that is a text; an empty one counts as missing.
fn text<'c>(claims: &'c Map, name: &str) -> Result<&'c str, InvalidProof> {
    match member(claims, name).and_then(Value::as_str) {
        None | Some("") => Err(InvalidProof::Claim),
        Some(text) => Ok(text),
    }
}

/// Returns the thumbprint of a public key (RFC 7638 §3) by the members as they were sent: the key is
/// not parsed for it.
fn thumbprint(jwk: &Map) -> Option<Digest> {
    let required: &[&str] = match jwk.get("kty")?.as_str()? {
        "EC" => &["crv", "kty", "x", "y"],
        "OKP" => &["crv", "kty", "x"],
        "RSA" => &["e", "kty", "n"],
        _ => return None,
    };
    // A `Map` has its members in the order of their names, as RFC 7638 §3.3 requires.
    let mut members = Map::new();
    for name in required {
        let value @ Value::String(_) = jwk.get(*name)? else {
            return None;
        };
        members.insert((*name).to_owned(), value.clone());
    }
    Some(sha256(Value::Object(members).to_string().as_bytes()))
}

/// Returns true for null and for an empty list, which .NET writes for the members that a key lacks. Stricter than in a
/// key set: an empty text is a member.
fn is_absent(member: &Value) -> bool {
    match member {
        Value::Array(items) => items.is_empty(),
        other => *other == Value::Null,
    }
}

#[cfg(test)]
mod tests;
