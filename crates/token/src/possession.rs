//! Proof of possession (RFC 7800): the key or the certificate that a token is bound to, and their proofs in a
//! request.

pub mod nonces;
pub mod proof;
pub mod seen_proofs;

use std::sync::OnceLock;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::digest::Digest;
use crate::invalid::InvalidToken;
use crate::keys::VerificationKey;
use crate::sources::bearer::{Bearer, Scheme, TokenLocation};
use crate::strict_json::Value;

/// Parses a digest as tokens have it: base64url without padding.
fn parse_digest(text: &str) -> Option<Digest> {
    let mut digest = Digest::default();
    match URL_SAFE_NO_PAD.decode_slice(text, &mut digest) {
        Ok(length) if length == digest.len() => Some(digest),
        _ => None,
    }
}

/// The key and the certificate that a token is bound to: at least one member of its `cnf`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Binding {
    /// `jkt`: the thumbprint of the key that signs proofs (RFC 9449 §6.1).
    pub key: Option<Digest>,
    /// `x5t#S256`: the digest of the client's certificate (RFC 8705 §3.1).
    pub certificate: Option<Digest>,
}

impl Binding {
    /// Reads `cnf`.
    ///
    /// # Errors
    /// [`InvalidToken::Bound`] for a confirmation that is not understood, as a whole or in part, because its
    /// demand cannot be checked here.
    pub(crate) fn from_claim(cnf: &Value) -> Result<Self, InvalidToken> {
        let mut binding = Self::default();
        for (name, value) in cnf.as_object().ok_or(InvalidToken::Bound)? {
            let digest = value
                .as_str()
                .and_then(parse_digest)
                .ok_or(InvalidToken::Bound)?;
            match name.as_str() {
                "jkt" => binding.key = Some(digest),
                "x5t#S256" => binding.certificate = Some(digest),
                _ => return Err(InvalidToken::Bound),
            }
        }
        binding.or_none().ok_or(InvalidToken::Bound)
    }

    /// Returns `None` for a binding without key and certificate.
    #[must_use]
    pub fn or_none(self) -> Option<Self> {
        match (self.key, self.certificate) {
            (None, None) => None,
            _ => Some(self),
        }
    }

    /// Checks that a token came by the scheme that its binding needs. A bound token is accepted in
    /// `Authorization` alone, and a token that is bound to a key is no bearer token (RFC 9449 §7.2).
    ///
    /// # Errors
    /// [`InvalidToken::Bound`].
    pub fn check_scheme(binding: Option<&Self>, token: Bearer<'_>) -> Result<(), InvalidToken> {
        let needs_proof = matches!(binding, Some(Self { key: Some(_), .. }));
        let fits = match token.location() {
            TokenLocation::Authorization(Scheme::Dpop) => needs_proof,
            TokenLocation::Authorization(Scheme::Bearer) => !needs_proof,
            _ => binding.is_none(),
        };
        if fits {
            Ok(())
        } else {
            Err(InvalidToken::Bound)
        }
    }

    /// Compares the certificate of the connection with the binding of the token (RFC 8705 §3).
    ///
    /// # Errors
    /// [`InvalidToken::CertificateMissing`], [`InvalidToken::CertificateOther`].
    pub fn check_certificate(&self, presented: Option<&Digest>) -> Result<(), InvalidToken> {
        match (&self.certificate, presented) {
            (None, _) => Ok(()),
            (Some(bound), Some(presented)) if bound == presented => Ok(()),
            (Some(_), Some(_)) => Err(InvalidToken::CertificateOther),
            (Some(_), None) => Err(InvalidToken::CertificateMissing),
        }
    }
}

/// Writes `cnf`.
impl Serialize for Binding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        for (name, digest) in [("jkt", self.key), ("x5t#S256", self.certificate)] {
            if let Some(digest) = digest {
                members.serialize_entry(name, &URL_SAFE_NO_PAD.encode(digest))?;
            }
        }
        members.end()
    }
}

impl<'de> Deserialize<'de> for Binding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_claim(&Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The binding of a verified token, and the key of its proofs once one was verified.
#[derive(Debug, Clone)]
pub struct Possession {
    /// The members of `cnf`.
    pub binding: Binding,
    /// The key, parsed once for all proofs.
    pub key: OnceLock<VerificationKey>,
}

impl From<Binding> for Possession {
    fn from(binding: Binding) -> Self {
        Self {
            binding,
            key: OnceLock::new(),
        }
    }
}

/// Compares the bindings, from which the keys follow.
impl PartialEq for Possession {
    fn eq(&self, other: &Self) -> bool {
        self.binding == other.binding
    }
}

impl Eq for Possession {}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;
    use crate::digest::sha256;

    /// RFC 9449 §6.1 and RFC 8705 §3.1.
    const JKT: &str = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I";
    const X5T: &str = "bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2";

    #[test]
    fn a_confirmation_counts_only_if_all_of_it_is_understood() {
        for (cnf, expected) in [
            (json!({"jkt": JKT}), Some((true, false))),
            (
                json!({"x5t#S256": X5T.replace("dg2", "dgw")}),
                Some((false, true)),
            ),
            (json!({"jkt": JKT, "x5t#S256": JKT}), Some((true, true))),
            (json!({"jkt": JKT, "jwk": {}}), None),
            (json!({"jkt": JKT, "kid": null}), None),
            (json!({"jkt": JKT, "x5t#S256": null}), None),
            (json!({"JKT": JKT}), None),
            (json!({"jkt": ""}), None),
            (json!({"jkt": &JKT[1..]}), None),
            (json!({"jkt": format!("{JKT}=")}), None),
            (json!({"jkt": format!("{JKT}AA")}), None),
            (json!({"jkt": [JKT]}), None),
            // Stray bits after the digest: another text for the same bytes.
            (json!({"x5t#S256": X5T}), None),
            (json!({}), None),
            (json!([]), None),
            (json!("none"), None),
        ] {
            let value: Value = serde_json::from_value(cnf.clone()).unwrap();
            let binding = Binding::from_claim(&value);
            let found = binding.map(|it| (it.key.is_some(), it.certificate.is_some()));
            assert_eq!(found, expected.ok_or(InvalidToken::Bound), "{cnf}");
        }
    }

    #[test]
    fn rfc_8705_3_the_certificate_is_the_tokens() {
        let bound = |certificate| Binding {
            key: None,
            certificate,
        };
        let (one, other) = (sha256(b"one"), sha256(b"other"));
        for (bound_to, presented, expected) in [
            (Some(one), Some(one), Ok(())),
            (Some(one), Some(other), Err(InvalidToken::CertificateOther)),
            (Some(one), None, Err(InvalidToken::CertificateMissing)),
            (None, Some(one), Ok(())),
            (None, None, Ok(())),
        ] {
            let found = bound(bound_to).check_certificate(presented.as_ref());
            assert_eq!(found, expected);
        }
    }
}
