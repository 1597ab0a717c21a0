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
        let of_its_family = allowed.iter().filter(|other| other.family() == family);
        // A curve fits one algorithm only, which the parser checks.
        let tried =
            of_its_family.map(|algorithm| Self::named_by_thumbprint(*algorithm, key.clone()));
        tried
            .reduce(Result::or)
            .unwrap_or(Err(KeyError::NotAllowed))
            .map_err(|error| match error {
                // A public key it is, so its curve is what fits none of them.
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
            ("", not_public("nothing")),
            ("<html>", not_public("HTML")),
            (P256, other(Algorithm::ES256)),
            (ED25519, other(Algorithm::EdDSA)),
            (private, KeyError::PrivateKey),
            // PKCS#8 without armour: its length in the first byte, in one more, in two more.
            ("MC4CAQA=", KeyError::PrivateKey),
            ("MIGHAgEA", KeyError::PrivateKey),
            ("MIIEvQIBAA==", KeyError::PrivateKey),
            ("AAAA", KeyError::NotAPublicKey),
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
        assert!(parse(&certificate).is_err());
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

    fn not_public(found: &str) -> KeyError {
        let found = found.to_owned();
        KeyError::NotPublicPem { found }
    }

    fn pem(base64: &str) -> String {
        format!("-----BEGIN PUBLIC KEY-----\n{base64}\n-----END PUBLIC KEY-----\n")
    }

    #[test]
    fn a_public_key_of_any_type_has_its_fitting_algorithm() {
        use Algorithm::{ES256, ES384, EdDSA, RS256};
        let allowed = [RS256, ES384, ES256, EdDSA];
        for (key, algorithm) in [(P256, ES256), (P384, ES384), (ED25519, EdDSA)] {
            for text in [key.to_owned(), pem(key)] {
                let keys = KeySet::from_file(text.as_bytes(), &allowed).unwrap();
                assert!(keys.keys().iter().all(|key| !key.is_named()));
                assert_eq!(keys.keys()[0].algorithm(), algorithm);
                let rejected = KeySet::from_file(text.as_bytes(), &[RS256]).unwrap_err();
                assert_eq!(rejected, KeyError::NotAllowed);
            }
        }
    }

    /// `openssl pkey -pubin -text`, `openssl pkcs12`, and a header of INI in Latin-1.
    #[test]
    fn text_around_the_blocks_counts_for_nothing() {
        let (one, other) = (pem(P256), pem(ED25519));
        let latin = [b"[ schl\xfcssel ]\n", one.as_bytes()].concat();
        for (bytes, keys) in [
            (format!("\n{one}\n{other}").into_bytes(), 2),
            (format!("Public-Key: (256 bit)\n{one}").into_bytes(), 1),
            (
                format!(
                    "Bag Attributes\r\n    friendlyName: x\r\n{one}# between\n{other}the end\n"
                )
                .into_bytes(),
                2,
            ),
            (format!("{{ in use }}\n{one}").into_bytes(), 1),
            (latin, 1),
        ] {
            let set = KeySet::from_file(&bytes, &[Algorithm::ES256, Algorithm::EdDSA]).unwrap();
            assert_eq!(set.keys().len(), keys);
        }
    }

    /// PKCS #1 of a key of 2048 bits, as `ssh-keygen -e -m PEM` writes it.
    #[test]
    fn an_rsa_key_in_pkcs_1_is_a_public_key() {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let modulus = [&[0x02, 0x82, 0x01, 0x01, 0x00][..], &[0xc5; 256]].concat();
        let exponent = [0x02, 0x03, 0x01, 0x00, 0x01];
        let der = [&[0x30, 0x82, 0x01, 0x0a][..], &modulus, &exponent].concat();
        let text = pem(&STANDARD.encode(der)).replace("PUBLIC", "RSA PUBLIC");
        let keys = KeySet::from_file(text.as_bytes(), &[Algorithm::RS256]).unwrap();
        assert_eq!(keys.keys()[0].algorithm(), Algorithm::RS256);
    }

    #[test]
    fn what_is_no_public_key_is_named_and_never_quoted() {
        let (key, labelled) = (pem(P256), |label: &str| {
            pem(P256).replace("PUBLIC KEY", label)
        });
        let cut_off = "PEM that is cut off, or has other characters than base64";
        let of_base64 = "the base64 of PEM: base64 -d decodes it";
        let open_ssh = "a key of OpenSSH: ssh-keygen -e -m PKCS8 -f FILE writes PEM";
        let utf_16 = |text: &str| {
            text.encode_utf16()
                .flat_map(u16::to_le_bytes)
                .collect::<Vec<_>>()
        };
        for (bytes, found) in [
            (b"".to_vec(), "nothing"),
            (b"<html>".to_vec(), "HTML"),
            (labelled("CERTIFICATE").into_bytes(), "PEM of CERTIFICATE"),
            (
                labelled("CERTIFICATE REQUEST").into_bytes(),
                "PEM of CERTIFICATE REQUEST",
            ),
            (
                labelled("EC PARAMETERS").into_bytes(),
                "PEM of EC PARAMETERS",
            ),
            (
                format!("{key}{}", labelled("X509 CRL")).into_bytes(),
                "PEM of PUBLIC KEY, X509 CRL",
            ),
            (format!("{key}{}", &key[..60]).into_bytes(), cut_off),
            (key.replace('\n', "\\n").into_bytes(), cut_off),
            (b"ssh-rsa AAAAB3NzaC1yc2E= me".to_vec(), open_ssh),
            (b"ecdsa-sha2-nistp256 AAAAE2VjZHNh me".to_vec(), open_ssh),
            (
                vec![0x30, 0x82, 0x01, 0x22, 0x30, 0x0d],
                "DER or PKCS #12, which openssl converts to PEM",
            ),
            (b"LS0tLS1CRUdJTiBQVUJMSUMgS0VZLS0tLS0K".to_vec(), of_base64),
            (
                vec![0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2],
                "a Java keystore: keytool converts it to PKCS #12, and openssl that to PEM",
            ),
            (utf_16(&key), "UTF-16: it has to be UTF-8"),
            (
                utf_16(&format!("\u{feff}{key}")),
                "UTF-16: it has to be UTF-8",
            ),
        ] {
            let rejected = KeySet::from_file(&bytes, &[Algorithm::ES256]).unwrap_err();
            assert_eq!(rejected, not_public(found));
        }
        let private = [
            "PRIVATE KEY",
            "RSA PRIVATE KEY",
            "OPENSSH PRIVATE KEY",
            "ENCRYPTED PRIVATE KEY",
        ]
        .map(labelled);
        for private in &private {
            for text in [
                private.clone(),
                format!("{key}{private}"),
                private[..40].to_owned(),
            ] {
                let rejected = KeySet::from_file(text.as_bytes(), &[Algorithm::ES256]).unwrap_err();
                assert_eq!(rejected, KeyError::PrivateKey, "{text}");
            }
        }
    }
}
