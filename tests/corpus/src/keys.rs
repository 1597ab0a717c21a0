//! Fresh key pairs, one for each algorithm, and every way to sign with them, including the wrong
//! ways.
//!
//! Where a key cannot make a signature, the result is empty: the token is then a bad one.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING,
    ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding,
    RsaPssSaltLength,
};
use aws_lc_rs::{hmac, rand};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Value, json};

/// The contract's three signing types (§2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SigningType {
    /// RS256
    Rsa,
    /// HS256
    Hmac,
    /// ES256
    Ecdsa,
}

impl SigningType {
    /// All three types.
    pub const ALL: [Self; 3] = [Self::Rsa, Self::Hmac, Self::Ecdsa];

    /// Returns the value of the programs' flag.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rsa => "rsa",
            Self::Hmac => "hmac",
            Self::Ecdsa => "ecdsa",
        }
    }

    /// Returns the one `alg` of the type.
    pub fn algorithm(self) -> &'static str {
        Algorithm::from(self).name()
    }
}

/// An algorithm: all that the programs verify, and two related ones that they do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256
    RS256,
    /// The same with SHA-384
    RS384,
    /// The same with SHA-512
    RS512,
    /// RSASSA-PSS with SHA-256
    PS256,
    /// The same with SHA-384
    PS384,
    /// The same with SHA-512
    PS512,
    /// ECDSA on P-256 with SHA-256
    ES256,
    /// ECDSA on P-384 with SHA-384
    ES384,
    /// Ed25519
    EdDSA,
    /// HMAC with SHA-256
    HS256,
    /// HMAC with SHA-384, for which no key exists
    HS384,
    /// HMAC with SHA-512, for which no key exists
    HS512,
}

/// Kind of key of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// RS… and PS…
    Rsa,
    /// ES…
    Ecdsa,
    /// EdDSA
    Eddsa,
    /// HS…
    Hmac,
}

impl Algorithm {
    /// All algorithms that one of the programs verifies.
    pub const VERIFIED: [Self; 10] = [
        Self::RS256,
        Self::RS384,
        Self::RS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::ES256,
        Self::ES384,
        Self::EdDSA,
        Self::HS256,
    ];

    /// Returns the name in a token's header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RS256 => "RS256",
            Self::RS384 => "RS384",
            Self::RS512 => "RS512",
            Self::PS256 => "PS256",
            Self::PS384 => "PS384",
            Self::PS512 => "PS512",
            Self::ES256 => "ES256",
            Self::ES384 => "ES384",
            Self::EdDSA => "EdDSA",
            Self::HS256 => "HS256",
            Self::HS384 => "HS384",
            Self::HS512 => "HS512",
        }
    }

    /// Returns the kind of its keys.
    pub const fn family(self) -> Family {
        match self {
            Self::RS256 | Self::RS384 | Self::RS512 | Self::PS256 | Self::PS384 | Self::PS512 => {
                Family::Rsa
            }
            Self::ES256 | Self::ES384 => Family::Ecdsa,
            Self::EdDSA => Family::Eddsa,
            Self::HS256 | Self::HS384 | Self::HS512 => Family::Hmac,
        }
    }
}

impl From<SigningType> for Algorithm {
    fn from(signing_type: SigningType) -> Self {
        match signing_type {
            SigningType::Rsa => Self::RS256,
            SigningType::Hmac => Self::HS256,
            SigningType::Ecdsa => Self::ES256,
        }
    }
}

/// A key pair, or the shared secret that stands for one.
#[derive(Debug)]
pub struct SigningKey {
    algorithm: Algorithm,
    pair: Pair,
    /// The public half as SubjectPublicKeyInfo; the bytes of the secret for hmac.
    public_der: Vec<u8>,
    /// The private half as PKCS#8; the bytes of the secret for hmac.
    private_der: Vec<u8>,
}

#[derive(Debug)]
enum Pair {
    Rsa(Arc<rsa::KeyPair>),
    Ecdsa {
        key: EcdsaKeyPair,
        der: EcdsaKeyPair,
    },
    Ed25519(Ed25519KeyPair),
    Hmac(String),
}

impl SigningKey {
    /// Generates a key.
    ///
    /// # Panics
    /// When the machine has no randomness.
    #[expect(clippy::expect_used, reason = "without randomness no test can go on")]
    pub fn generate(algorithm: impl Into<Algorithm>) -> Self {
        let algorithm = algorithm.into();
        let made = match algorithm.family() {
            Family::Rsa => generate_rsa(algorithm),
            Family::Ecdsa => generate_ecdsa(algorithm),
            Family::Eddsa => generate_ed25519(algorithm),
            Family::Hmac => generate_secret(algorithm),
        };
        made.expect("a key")
    }

    /// Returns a key for `algorithm`: this key if it fits, because RSA keys take long to generate,
    /// otherwise a fresh one.
    #[must_use]
    pub fn meant_for(&self, algorithm: Algorithm) -> Self {
        match &self.pair {
            Pair::Rsa(key) if algorithm.family() == Family::Rsa => Self {
                algorithm,
                pair: Pair::Rsa(Arc::clone(key)),
                public_der: self.public_der.clone(),
                private_der: self.private_der.clone(),
            },
            _ => Self::generate(algorithm),
        }
    }

    /// Returns the key's own algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the string that the contract's key endpoint serves: a PEM, or the shared secret.
    pub fn served(&self) -> String {
        match &self.pair {
            Pair::Hmac(secret) => secret.clone(),
            _ => pem("PUBLIC KEY", &self.public_der),
        }
    }

    /// Returns the public half as SubjectPublicKeyInfo; the bytes of the secret for hmac.
    pub fn public_der(&self) -> Vec<u8> {
        self.public_der.clone()
    }

    /// Returns the public half as a JWK, with the members of RFC 7638 §3.2 alone; null for hmac.
    pub fn public_jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.pair {
            Pair::Rsa(key) => {
                let [n, e] = [key.public_key().modulus(), key.public_key().exponent()]
                    .map(|number| encode(number.big_endian_without_leading_zero()));
                json!({"kty": "RSA", "n": n, "e": e})
            }
            Pair::Ecdsa { key, .. } => {
                // The uncompressed form has one byte before its two coordinates (SEC 1 §2.3.3).
                let (_, point) = key.public_key().as_ref().split_at(1);
                let (x, y) = point.split_at(point.len() / 2);
                let curve = match self.algorithm {
                    Algorithm::ES384 => "P-384",
                    _ => "P-256",
                };
                json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y)})
            }
            Pair::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(key.public_key().as_ref())})
            }
            Pair::Hmac(_) => Value::Null,
        }
    }

    /// Returns the thumbprint of the public half (RFC 7638).
    pub fn thumbprint(&self) -> String {
        // `Value` writes members in the order of their names, without blanks.
        let digest = digest(&SHA256, self.public_jwk().to_string().as_bytes());
        URL_SAFE_NO_PAD.encode(digest)
    }

    /// Returns the private half as a PKCS#8 PEM; the secret for hmac.
    pub fn private(&self) -> String {
        match &self.pair {
            Pair::Hmac(secret) => secret.clone(),
            _ => pem("PRIVATE KEY", &self.private_der),
        }
    }

    /// Signs with the key's own algorithm.
    pub fn sign(&self, input: &[u8]) -> Vec<u8> {
        self.sign_as(self.algorithm, input)
    }

    /// Signs with any algorithm that the key's bytes allow; returns an empty signature otherwise.
    pub fn sign_as(&self, algorithm: Algorithm, input: &[u8]) -> Vec<u8> {
        match (&self.pair, algorithm) {
            (Pair::Rsa(key), algorithm) => rsa_encoding(algorithm)
                .map(|encoding| sign_rsa(key, encoding, input))
                .unwrap_or_default(),
            (Pair::Ecdsa { key, .. }, algorithm) if algorithm == self.algorithm => {
                sign_ecdsa(key, input)
            }
            (Pair::Ed25519(key), Algorithm::EdDSA) => key.sign(input).as_ref().to_vec(),
            // The secret is the bytes of the served string.
            (Pair::Hmac(secret), algorithm) => hmac_algorithm(algorithm)
                .map(|algorithm| mac(algorithm, secret.as_bytes(), input))
                .unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Signs as a PSS key with a salt of another length than the hash (RFC 7518 §3.5); returns an
    /// empty signature for other keys.
    pub fn sign_with_salt(&self, salt: Salt, input: &[u8]) -> Vec<u8> {
        match (&self.pair, pss_encoding(self.algorithm, salt)) {
            (Pair::Rsa(key), Some(encoding)) => sign_rsa(key, encoding, input),
            _ => Vec::new(),
        }
    }

    /// Signs as an ECDSA key in ASN.1 DER instead of the fixed form; returns an empty signature for
    /// other keys.
    pub fn sign_in_der(&self, input: &[u8]) -> Vec<u8> {
        match &self.pair {
            Pair::Ecdsa { der, .. } => sign_ecdsa(der, input),
            _ => Vec::new(),
        }
    }
}

/// Length of the salt of a PSS signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Salt {
    /// No salt: the signature is always the same.
    None,
    /// The longest salt that the key allows.
    Longest,
}

fn pss_encoding(algorithm: Algorithm, salt: Salt) -> Option<&'static dyn RsaEncoding> {
    const NONE: RsaPssSaltLength = RsaPssSaltLength::Custom(0);
    const LONGEST: RsaPssSaltLength = RsaPssSaltLength::Max;
    Some(match (algorithm, salt) {
        (Algorithm::PS256, Salt::None) => &const { RSA_PSS_SHA256.with_pss_salt_length(NONE) },
        (Algorithm::PS384, Salt::None) => &const { RSA_PSS_SHA384.with_pss_salt_length(NONE) },
        (Algorithm::PS512, Salt::None) => &const { RSA_PSS_SHA512.with_pss_salt_length(NONE) },
        (Algorithm::PS256, Salt::Longest) => {
            &const { RSA_PSS_SHA256.with_pss_salt_length(LONGEST) }
        }
        (Algorithm::PS384, Salt::Longest) => {
            &const { RSA_PSS_SHA384.with_pss_salt_length(LONGEST) }
        }
        (Algorithm::PS512, Salt::Longest) => {
            &const { RSA_PSS_SHA512.with_pss_salt_length(LONGEST) }
        }
        _ => return None,
    })
}

fn rsa_encoding(algorithm: Algorithm) -> Option<&'static dyn RsaEncoding> {
    Some(match algorithm {
        Algorithm::RS256 => &RSA_PKCS1_SHA256,
        Algorithm::RS384 => &RSA_PKCS1_SHA384,
        Algorithm::RS512 => &RSA_PKCS1_SHA512,
        Algorithm::PS256 => &RSA_PSS_SHA256,
        Algorithm::PS384 => &RSA_PSS_SHA384,
        Algorithm::PS512 => &RSA_PSS_SHA512,
        _ => return None,
    })
}

const fn hmac_algorithm(algorithm: Algorithm) -> Option<hmac::Algorithm> {
    match algorithm {
        Algorithm::HS256 => Some(hmac::HMAC_SHA256),
        Algorithm::HS384 => Some(hmac::HMAC_SHA384),
        Algorithm::HS512 => Some(hmac::HMAC_SHA512),
        _ => None,
    }
}

/// Computes HMAC-SHA256 with any bytes as the secret, as a forger does with a public key.
pub fn hmac_sha256(secret: &[u8], input: &[u8]) -> Vec<u8> {
    mac(hmac::HMAC_SHA256, secret, input)
}

/// Wraps DER as PEM.
pub fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text
        .as_bytes()
        .chunks(64)
        .map(String::from_utf8_lossy)
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}

fn generate_rsa(algorithm: Algorithm) -> Result<SigningKey, Unspecified> {
    let key = rsa::KeyPair::generate(KeySize::Rsa2048)?;
    let public: PublicKeyX509Der<'_> = key.public_key().as_der()?;
    let public_der = public.as_ref().to_vec();
    let private_der = AsDer::as_der(&key)?.as_ref().to_vec();
    Ok(SigningKey {
        algorithm,
        pair: Pair::Rsa(Arc::new(key)),
        public_der,
        private_der,
    })
}

/// Generates one pair for two key objects, because the encoding of a signature is a property of the
/// key object.
fn generate_ecdsa(algorithm: Algorithm) -> Result<SigningKey, Unspecified> {
    type Kind = &'static EcdsaSigningAlgorithm;
    let (fixed, asn1): (Kind, Kind) = match algorithm {
        Algorithm::ES384 => (
            &ECDSA_P384_SHA384_FIXED_SIGNING,
            &ECDSA_P384_SHA384_ASN1_SIGNING,
        ),
        _ => (
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &ECDSA_P256_SHA256_ASN1_SIGNING,
        ),
    };
    let key = EcdsaKeyPair::generate(fixed)?;
    let document = key.to_pkcs8v1()?;
    let private_der = document.as_ref().to_vec();
    let der = EcdsaKeyPair::from_pkcs8(asn1, &private_der).map_err(|_| Unspecified)?;
    let public: PublicKeyX509Der<'_> = key.public_key().as_der()?;
    let public_der = public.as_ref().to_vec();
    Ok(SigningKey {
        algorithm,
        pair: Pair::Ecdsa { key, der },
        public_der,
        private_der,
    })
}

fn generate_ed25519(algorithm: Algorithm) -> Result<SigningKey, Unspecified> {
    let key = Ed25519KeyPair::generate()?;
    let public: PublicKeyX509Der<'_> = key.public_key().as_der()?;
    let public_der = public.as_ref().to_vec();
    let private_der = key.to_pkcs8v1()?.as_ref().to_vec();
    Ok(SigningKey {
        algorithm,
        pair: Pair::Ed25519(key),
        public_der,
        private_der,
    })
}

fn generate_secret(algorithm: Algorithm) -> Result<SigningKey, Unspecified> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes)?;
    let secret = URL_SAFE_NO_PAD.encode(bytes);
    Ok(SigningKey {
        algorithm,
        public_der: secret.as_bytes().to_vec(),
        private_der: secret.as_bytes().to_vec(),
        pair: Pair::Hmac(secret),
    })
}

fn sign_rsa(key: &rsa::KeyPair, encoding: &'static dyn RsaEncoding, input: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; key.public_modulus_len()];
    match key.sign(encoding, &SystemRandom::new(), input, &mut signature) {
        Ok(()) => signature,
        Err(Unspecified) => Vec::new(),
    }
}

fn sign_ecdsa(key: &EcdsaKeyPair, input: &[u8]) -> Vec<u8> {
    key.sign(&SystemRandom::new(), input)
        .map(|signature| signature.as_ref().to_vec())
        .unwrap_or_default()
}

fn mac(algorithm: hmac::Algorithm, secret: &[u8], input: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(algorithm, secret), input)
        .as_ref()
        .to_vec()
}
