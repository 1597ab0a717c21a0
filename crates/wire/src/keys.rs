//! Verification keys, parsed and checked once; never a private half.
//!
//! The *key* fixes the algorithm: the token's `alg` is only compared with it.

use std::fmt;

pub use jsonwebtoken::Algorithm;
use jsonwebtoken::{
    AlgorithmFamily, DecodingKey,
    jwk::{Jwk, PublicKeyUse, ThumbprintHash},
};

use self::algorithms::ASYMMETRIC;
use self::signing_type::SigningType;

pub mod algorithms;
mod key_set;
pub mod signing_type;
mod verifier;

pub use key_set::KeySet;
use verifier::Verifier;

/// The name of a key: compared for equality, never used as path, URL or query.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(String);

impl KeyId {
    /// Limits the memory of a name.
    const MAX_BYTES: usize = 128;

    /// Accepts 1 to 128 printable ASCII bytes.
    pub fn new(name: &str) -> Option<Self> {
        let valid = (1..=Self::MAX_BYTES).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic());
        valid.then(|| Self(name.to_owned()))
    }

    /// Returns the name as it stands in a token's header.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An unusable verification key. The text never holds the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Neither PEM `PUBLIC KEY` nor base64 of its DER.
    #[error("not a public key: expected PEM \"PUBLIC KEY\" (SPKI) or the base64 of its DER")]
    NotAPublicKey,
    /// A private key instead of a public one.
    #[error("this is a private key; only the public half may be published")]
    PrivateKey,
    /// A key of another type than configured.
    #[error("the key is of type {}, but --signing-type is {expected}", type_of(*found))]
    OtherType {
        /// The algorithm of the key.
        found: Algorithm,
        /// `--signing-type`.
        expected: SigningType,
    },
    /// An RSA key below 2048 bits, which an attacker can forge.
    #[error("the RSA modulus has {bits} bits; at least 2048 are needed")]
    RsaTooSmall {
        /// The length of the modulus.
        bits: usize,
    },
    /// An RSA modulus or exponent that verifies no signature.
    #[error(
        "the RSA key has an even or too long modulus, or an exponent that is even, 1 or too long"
    )]
    RsaImpossible,
    /// A secret shorter than the hash (RFC 7518 §3.2).
    #[error("the shared secret has {bytes} bytes; at least 32 are needed")]
    SecretTooShort {
        /// The length of the secret.
        bytes: usize,
    },
    /// A public key that fits none of the allowed algorithms.
    #[error("the key's type fits none of the allowed algorithms")]
    NotAllowed,
    /// Not a JWK Set (RFC 7517 §5).
    #[error("expected a JWK Set, {{\"keys\": […]}}, and found {found}")]
    NotAJwkSet {
        /// The kind of text in its place.
        found: &'static str,
    },
    /// A JWK Set without a usable key.
    #[error(
        "the JWK Set holds no usable verification key: it has {found}, and {wanted} may be used"
    )]
    NoUsableKey {
        /// Its keys, each with the reason why it is not used.
        found: String,
        /// The allowed algorithms.
        wanted: String,
    },
}

/// Returns the word of `--signing-type` for an algorithm, or the name of one without.
fn type_of(algorithm: Algorithm) -> String {
    let mut types = SigningType::ALL.into_iter();
    let of_it = types.find(|signing_type| signing_type.algorithm() == algorithm);
    of_it.map_or_else(|| algorithms::name(algorithm), |of_it| of_it.to_string())
}

/// A verification key and the only algorithm it is used for.
#[derive(Clone)]
pub struct VerificationKey {
    /// The name by which a token chooses the key; keys without one are tried.
    name: Option<KeyId>,
    /// The key's identity, independent of its name.
    thumbprint: KeyId,
    algorithm: Algorithm,
    verifier: Verifier,
    /// Kept for [`Self::to_jwk`].
    key: DecodingKey,
}

/// Never prints the key: in hmac mode it is the secret.
impl fmt::Debug for VerificationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerificationKey")
            .field("id", self.id())
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// RFC 7518 §3.2 for HS256.
const MIN_SECRET_BYTES: usize = 32;

impl VerificationKey {
    /// Parses a key from the response of the key endpoint or from the key store.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn parse(signing_type: SigningType, text: &str) -> Result<Self, KeyError> {
        match Self::of_any_type(text, &ASYMMETRIC) {
            Ok(key) if key.algorithm == signing_type.algorithm() => Ok(key),
            Ok(key) => Err(KeyError::OtherType {
                found: key.algorithm,
                expected: signing_type,
            }),
            // The text of a public key or a certificate is known to all, so it is no secret.
            Err(_) if signing_type == SigningType::Hmac && !is_public(text) => {
                Self::from_shared_secret(text)
            }
            Err(error) => Err(error),
        }
    }

    fn from_shared_secret(text: &str) -> Result<Self, KeyError> {
        // Every implementation uses the string's own bytes as the secret.
        let secret = text.trim().as_bytes();
        if secret.len() < MIN_SECRET_BYTES {
            return Err(KeyError::SecretTooShort {
                bytes: secret.len(),
            });
        }
        Self::named_by_thumbprint(Algorithm::HS256, DecodingKey::from_secret(secret))
    }

    /// Parses a public key of any type, for the first of `allowed` that fits it.
    fn of_any_type(text: &str, allowed: &[Algorithm]) -> Result<Self, KeyError> {
        let (key, family) = public_key(text)?;
        let of_its_family = allowed.iter().filter(|other| other.family() == family);
        // A curve fits one algorithm only, which the parser checks.
        let tried =
            of_its_family.map(|algorithm| Self::named_by_thumbprint(*algorithm, key.clone()));
        tried
            .reduce(Result::or)
            .unwrap_or(Err(KeyError::NotAllowed))
            .map_err(|error| match error {
                KeyError::NotAPublicKey => KeyError::NotAllowed,
                error => error,
            })
    }

    fn named_by_thumbprint(algorithm: Algorithm, key: DecodingKey) -> Result<Self, KeyError> {
        let verifier = Verifier::new(algorithm, &key)?;
        let thumbprint = Jwk::from_decoding_key(&key, Some(algorithm))
            .and_then(|jwk| jwk.thumbprint(ThumbprintHash::SHA256))
            .map_err(|_| KeyError::NotAPublicKey)?;
        let thumbprint = KeyId::new(&thumbprint).ok_or(KeyError::NotAPublicKey)?;
        Ok(Self {
            name: None,
            thumbprint,
            algorithm,
            verifier,
            key,
        })
    }

    /// Returns the key's name: the RFC 7638 thumbprint, or the `kid` of its JWK.
    pub const fn id(&self) -> &KeyId {
        match &self.name {
            Some(name) => name,
            None => &self.thumbprint,
        }
    }

    /// Returns true if the key has a name of its own, by which a token chooses it.
    pub const fn is_named(&self) -> bool {
        self.name.is_some()
    }

    /// Returns the RFC 7638 thumbprint: equal for equal keys with different names.
    pub const fn thumbprint(&self) -> &KeyId {
        &self.thumbprint
    }

    /// Returns the only algorithm this key verifies.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the key as a public JWK with `kid`, `alg` and `use`; `None` for a shared secret,
    /// which stays private.
    pub fn to_jwk(&self) -> Option<Jwk> {
        if self.algorithm.family() == AlgorithmFamily::Hmac {
            return None;
        }
        let mut jwk = Jwk::from_decoding_key(&self.key, Some(self.algorithm)).ok()?;
        jwk.common.key_id = Some(self.id().0.clone());
        jwk.common.public_key_use = Some(PublicKeyUse::Signature);
        Some(jwk)
    }

    /// Returns true if `signature` is this key's over `message`.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.verifier.verifies(message, signature)
    }
}

fn is_public(text: &str) -> bool {
    text.contains("-----BEGIN ") || public_key(text).is_ok()
}

/// Parses a public key of any type.
fn public_key(text: &str) -> Result<(DecodingKey, AlgorithmFamily), KeyError> {
    let pem = public_key_pem(text)?;
    let pem = pem.as_bytes();
    [
        (DecodingKey::from_rsa_pem(pem), AlgorithmFamily::Rsa),
        (DecodingKey::from_ec_pem(pem), AlgorithmFamily::Ec),
        (DecodingKey::from_ed_pem(pem), AlgorithmFamily::Ed),
    ]
    .into_iter()
    .find_map(|(key, family)| Some((key.ok()?, family)))
    .ok_or(KeyError::NotAPublicKey)
}

/// Accepts one PEM block `PUBLIC KEY`, or the base64 of its DER without the armour.
fn public_key_pem(text: &str) -> Result<String, KeyError> {
    const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
    const END: &str = "-----END PUBLIC KEY-----";

    let text = text.trim();
    if text.contains("PRIVATE KEY-----") {
        return Err(KeyError::PrivateKey);
    }
    let armoured = text.starts_with(BEGIN) && text.ends_with(END);
    match text.matches("-----BEGIN ").count() {
        1 if armoured => Ok(text.to_owned()),
        0 if is_private_der(text) => Err(KeyError::PrivateKey),
        0 => Ok(format!("{BEGIN}\n{text}\n{END}\n")),
        _ => Err(KeyError::NotAPublicKey),
    }
}

/// Returns true for PKCS#8 (RFC 5958), which starts with a version; SPKI (RFC 5280 §4.1) starts
/// with a SEQUENCE.
fn is_private_der(base64: &str) -> bool {
    use base64::{Engine, engine::general_purpose::STANDARD};

    const SEQUENCE: u8 = 0x30;
    const INTEGER: u8 = 0x02;
    let compact: String = base64.split_ascii_whitespace().collect();
    let Ok(der) = STANDARD.decode(compact) else {
        return false;
    };
    let content = match der.as_slice() {
        [SEQUENCE, length, rest @ ..] if *length < 0x80 => rest,
        [SEQUENCE, length, rest @ ..] => rest.get(usize::from(length & 0x7f)..).unwrap_or(&[]),
        _ => &[],
    };
    content.first() == Some(&INTEGER)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn strings_that_are_no_public_key_are_rejected() {
        let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----";
        let other = |found| KeyError::OtherType {
            found,
            expected: SigningType::Rsa,
        };
        let cases = [
            ("", KeyError::NotAPublicKey),
            ("<html>", KeyError::NotAPublicKey),
            (P256, other(Algorithm::ES256)),
            (ED25519, other(Algorithm::EdDSA)),
            (private, KeyError::PrivateKey),
            // PKCS#8 without armour: its length in the first byte, in one more, in two more.
            ("MC4CAQA=", KeyError::PrivateKey),
            ("MIGHAgEA", KeyError::PrivateKey),
            ("MIIEvQIBAA==", KeyError::PrivateKey),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
                KeyError::NotAPublicKey,
            ),
        ];
        for (text, expected) in cases {
            let error = VerificationKey::parse(SigningType::Rsa, text).unwrap_err();
            assert_eq!(error, expected, "{text}");
        }
    }

    #[test]
    fn a_shared_secret_has_at_least_32_bytes_and_is_never_a_jwk() {
        let parse = |text: &str| VerificationKey::parse(SigningType::Hmac, text);
        let found = parse(&"a".repeat(31)).unwrap_err();
        assert_eq!(found, KeyError::SecretTooShort { bytes: 31 });
        for public in [P256.to_owned(), pem(P256)] {
            let why = "the key is of type ecdsa, but --signing-type is hmac";
            assert_eq!(parse(&public).unwrap_err().to_string(), why);
        }
        let certificate = pem(P256).replace("PUBLIC KEY", "CERTIFICATE");
        assert_eq!(parse(&certificate).err(), Some(KeyError::NotAPublicKey));
        let key = parse(&"a".repeat(32)).unwrap();
        assert!(key.to_jwk().is_none());
        let printed = format!(
            "VerificationKey {{ id: KeyId(\"{}\"), algorithm: HS256, .. }}",
            key.id()
        );
        assert_eq!(format!("{key:?}"), printed);
    }

    /// P-256, P-384 and Ed25519 (SPKI).
    const P256: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEfMVwmU++jJT+E3CZyufERNg0tK2IdtY+UJfTh6cyCKRyZZLdYzkCF07DFHSIuAm2YyWTUWL999y7uJ1vg19ZvA==";
    const P384: &str = "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEOh0l29FmhIMQDFH7UHBuOlpyRNMWdICUzFWQg4z9YArTd0VumWNfaH5QzpDyFiLg+GRUuho5iIWFvdF7w49PIFGTj3fMXjkYJmoU7Xdh/EpTWfqg7HpHo4iSSkeoMAXK";
    const ED25519: &str = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";

    fn pem(base64: &str) -> String {
        format!("-----BEGIN PUBLIC KEY-----\n{base64}\n-----END PUBLIC KEY-----\n")
    }

    #[test]
    fn a_public_key_of_any_type_has_its_fitting_algorithm() {
        use Algorithm::{ES256, ES384, EdDSA, RS256};
        let allowed = [RS256, ES384, ES256, EdDSA];
        for (key, algorithm) in [(P256, ES256), (P384, ES384), (ED25519, EdDSA)] {
            for text in [key.to_owned(), pem(key)] {
                let keys = KeySet::from_pem(&text, &allowed).unwrap();
                assert!(keys.keys().iter().all(|key| !key.is_named()));
                assert_eq!(keys.keys()[0].algorithm(), algorithm);
                let rejected = KeySet::from_pem(&text, &[RS256]).unwrap_err();
                assert_eq!(rejected, KeyError::NotAllowed);
            }
        }
        let both = KeySet::from_pem(&format!("\n{}\n{}", pem(P256), pem(ED25519)), &allowed);
        assert_eq!(both.unwrap().keys().len(), 2);
        let key = pem(P256);
        let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----";
        for (text, error) in [
            (String::new(), KeyError::NotAPublicKey),
            ("<html>".to_owned(), KeyError::NotAPublicKey),
            (format!("{key}{private}"), KeyError::PrivateKey),
            (format!("{private}\n{key}"), KeyError::PrivateKey),
            (format!("{key}trailing"), KeyError::NotAPublicKey),
            (format!("# a comment\n{key}"), KeyError::NotAPublicKey),
            (
                key.replace("PUBLIC KEY", "CERTIFICATE"),
                KeyError::NotAPublicKey,
            ),
        ] {
            let rejected = KeySet::from_pem(&text, &allowed).unwrap_err();
            assert_eq!(rejected, error, "{text}");
        }
    }
}
