//! The public keys, serialized once for each state of the ring: ten thousand sidecars fetch them in
//! the same second of every minute.

use arc_swap::ArcSwapOption;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::HeaderValue;
use jsonwebtoken::jwk;
use postern_contract::envelope::{Envelope, MSG_OPERATION_SUCCEEDED};
use postern_token::digest::sha256;
use postern_token::keys::signing_type::SigningType;
use postern_token::keys::{KeySet, VerificationKey};
use serde::ser::Error;

use super::ring::KeyRing;

/// The keys in use, swapped as a whole; empty until a pair was read from the store or accepted by it.
pub(crate) type LiveKeys = ArcSwapOption<PublishedKeys>;

/// A state of the ring, and its serialized forms.
#[derive(Debug)]
pub(crate) struct PublishedKeys {
    pub(crate) ring: KeyRing,
    /// Every listed key, for this server's own interceptor.
    pub(crate) verification_keys: KeySet,
    /// The body of the contract's key response: an envelope around the current public key.
    pub(crate) key_response: Bytes,
    /// The JWK Set; `None` for a shared secret, which is never listed.
    pub(crate) jwk_set: Option<JwkSet>,
}

/// The public keys as a JWK Set (RFC 7517 §5).
#[derive(Debug)]
pub(crate) struct JwkSet {
    pub(crate) json: Bytes,
    /// A strong validator, the same on every server for the same bytes.
    pub(crate) etag: HeaderValue,
}

impl PublishedKeys {
    pub(crate) fn new(signing_type: SigningType, ring: KeyRing) -> serde_json::Result<Self> {
        Ok(Self {
            verification_keys: ring.verification_key_set(signing_type),
            key_response: key_response(&ring)?,
            jwk_set: match signing_type {
                SigningType::Hmac => None,
                _ => Some(JwkSet::from_keys(ring.verification_keys())?),
            },
            ring,
        })
    }
}

fn key_response(ring: &KeyRing) -> serde_json::Result<Bytes> {
    Envelope::ok(MSG_OPERATION_SUCCEEDED, ring.current().public_key_string())
        .to_json()
        .map(Bytes::from)
}

impl JwkSet {
    fn from_keys<'k>(keys: impl Iterator<Item = &'k VerificationKey>) -> serde_json::Result<Self> {
        let keys = keys.filter_map(VerificationKey::to_jwk).collect();
        let json = serde_json::to_vec(&jwk::JwkSet { keys })?;
        let etag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(sha256(&json)));
        Ok(Self {
            json: Bytes::from(json),
            etag: etag.try_into().map_err(serde_json::Error::custom)?,
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::super::pair::SigningKeyPair;
    use super::*;

    /// Returns the keys as loaded from a store that holds `pair`.
    pub(crate) fn holding(pair: SigningKeyPair) -> LiveKeys {
        holding_ring(KeyRing::of(Arc::new(pair)))
    }

    /// Returns the keys as loaded from a store that holds `ring`.
    pub(crate) fn holding_ring(ring: KeyRing) -> LiveKeys {
        let signing_type = SigningType::ALL
            .into_iter()
            .find(|of| of.algorithm() == ring.current().verification_key().algorithm())
            .unwrap();
        LiveKeys::from_pointee(PublishedKeys::new(signing_type, ring).unwrap())
    }
}
