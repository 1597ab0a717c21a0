//! Verification keys, parsed and checked once; never a private half.
//!
//! The *key* fixes the algorithm: the token's `alg` is only compared with it.

use std::fmt;

pub use jsonwebtoken::Algorithm;
use jsonwebtoken::{
    AlgorithmFamily, DecodingKey,
    jwk::{Jwk, PublicKeyUse, ThumbprintHash},
};
use pem::Pem;

use self::algorithms::ASYMMETRIC;
use self::signing_type::SigningType;
use crate::strict_json::{Map, Value};

pub mod algorithms;
mod found;
mod key_set;
mod public_pem;
pub mod signing_type;
mod verifier;
#[cfg(test)]
mod wycheproof;

pub use found::found_in;
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

const SUPPORTED: &str = "RSA, P-256, P-384 and Ed25519 are supported";

/// An unusable verification key. The text never holds the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The content of no public key.
    #[error(
        "not a public key: expected PEM \"PUBLIC KEY\" (SPKI) or the base64 of its DER; {}",
        SUPPORTED
    )]
    NotAPublicKey,
    /// Something else than PEM `PUBLIC KEY` or base64 of its DER.
    #[error(
        "expected PEM \"PUBLIC KEY\" (`openssl x509 -pubkey` writes a certificate's), or a JWK Set in a file, and found {found}"
    )]
    NotPublicPem {
        /// The kind of text in its place.
        found: String,
    },
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
    #[error("the key's type fits none of the allowed algorithms; {}", SUPPORTED)]
    NotAllowed,
    /// Not a JWK Set (RFC 7517 §5).
    #[error("expected a JWK Set, {{\"keys\": […]}}, and found {found}")]
    NotAJwkSet {
        /// The kind of text in its place.
        found: String,
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
    types
        .find(|signing_type| signing_type.algorithm() == algorithm)
        .map_or_else(|| algorithms::name(algorithm), |word| word.to_string())
}

/// The position of a key set among those of all issuers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeySetIndex(pub usize);

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
        let blocks = public_pem::blocks(text.as_bytes());
        let key = blocks.and_then(|blocks| match blocks.as_slice() {
            [one] => Self::from_block(one, &ASYMMETRIC),
            _ => Err(KeyError::NotAPublicKey),
        });
        match key {
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

    /// Parses a public JWK (RFC 7517), for the first of `allowed` that fits it.
    ///
    /// # Errors
    /// The reason why it is not used.
    pub(crate) fn from_jwk(jwk: &Value, allowed: &[Algorithm]) -> Result<Self, String> {
        key_set::verification_key_from_jwk(jwk, allowed)
    }

    /// Checks that a JWK's own members allow it to verify signatures of this algorithm, whatever
    /// the key itself is.
    ///
    /// # Errors
    /// The reason why it is not used.
    pub(crate) fn check_jwk(jwk: &Map, algorithm: Algorithm) -> Result<(), String> {
        key_set::check_members(jwk, algorithm)
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
    fn from_block(block: &Pem, allowed: &[Algorithm]) -> Result<Self, KeyError> {
        let (key, family) = public_pem::key_of(block)?;
        let same_family = allowed.iter().filter(|other| other.family() == family);
        // A curve fits one algorithm only, which the parser checks.
        let tried = same_family.map(|algorithm| Self::named_by_thumbprint(*algorithm, key.clone()));
        tried
            .reduce(Result::or)
            .unwrap_or(Err(KeyError::NotAllowed))
            .map_err(|error| match error {
                // It is a public key, so its curve fits none of the algorithms.
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

    /// Returns name and algorithm, for people.
    pub fn name(&self) -> impl fmt::Display {
        fmt::from_fn(|f| write!(f, "{} ({})", self.id(), algorithms::name(self.algorithm())))
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
    let holds_key = |blocks: Vec<Pem>| blocks.iter().any(|it| public_pem::key_of(it).is_ok());
    text.contains(found::BEGIN) || public_pem::blocks(text.as_bytes()).is_ok_and(holds_key)
}

#[cfg(test)]
mod tests;
