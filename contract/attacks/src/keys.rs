//! Fresh key pairs, one for each signing type, and every way to sign with them – the wrong ways too.
//!
//! Where a signature cannot be made it is empty: the token is then no good one, and its row says so.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RsaEncoding,
};
use aws_lc_rs::{hmac, rand};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::Deserialize;

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
    /// All three.
    pub const ALL: [Self; 3] = [Self::Rsa, Self::Hmac, Self::Ecdsa];

    /// As the programs' flag spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rsa => "rsa",
            Self::Hmac => "hmac",
            Self::Ecdsa => "ecdsa",
        }
    }

    /// The one `alg` of the type.
    pub const fn algorithm(self) -> &'static str {
        match self {
            Self::Rsa => "RS256",
            Self::Hmac => "HS256",
            Self::Ecdsa => "ES256",
        }
    }
}

/// A key pair, or the shared secret that stands for one.
#[derive(Debug)]
pub struct SigningKey {
    pair: Pair,
    /// The public half as SubjectPublicKeyInfo; the bytes of the secret for hmac.
    public_der: Vec<u8>,
    /// The private half as PKCS#8; the bytes of the secret for hmac.
    private_der: Vec<u8>,
}

#[derive(Debug)]
enum Pair {
    Rsa(rsa::KeyPair),
    Ecdsa {
        key: EcdsaKeyPair,
        der: EcdsaKeyPair,
    },
    Hmac(String),
}

impl SigningKey {
    /// A fresh key.
    ///
    /// # Panics
    /// When the machine has no randomness.
    #[expect(
        clippy::expect_used,
        reason = "without randomness there is nothing to go on with, and nobody to ask again"
    )]
    pub fn generate(signing_type: SigningType) -> Self {
        match signing_type {
            SigningType::Rsa => generate_rsa().expect("an RSA key"),
            SigningType::Ecdsa => generate_ecdsa().expect("an ECDSA key"),
            SigningType::Hmac => generate_secret().expect("random bytes"),
        }
    }

    /// Which type it is.
    pub const fn signing_type(&self) -> SigningType {
        match self.pair {
            Pair::Rsa(_) => SigningType::Rsa,
            Pair::Ecdsa { .. } => SigningType::Ecdsa,
            Pair::Hmac(_) => SigningType::Hmac,
        }
    }

    /// The string that the contract's key endpoint serves: a PEM, or the shared secret.
    pub fn served(&self) -> String {
        match &self.pair {
            Pair::Hmac(secret) => secret.clone(),
            Pair::Rsa(_) | Pair::Ecdsa { .. } => pem("PUBLIC KEY", &self.public_der),
        }
    }

    /// The public half as SubjectPublicKeyInfo; the bytes of the secret for hmac.
    pub fn public_der(&self) -> Vec<u8> {
        self.public_der.clone()
    }

    /// The private half as a PKCS#8 PEM; the secret for hmac.
    pub fn private(&self) -> String {
        match &self.pair {
            Pair::Hmac(secret) => secret.clone(),
            Pair::Rsa(_) | Pair::Ecdsa { .. } => pem("PRIVATE KEY", &self.private_der),
        }
    }

    /// The signature that JWS wants: RS256, ES256 or HS256.
    pub fn sign(&self, input: &[u8]) -> Vec<u8> {
        match &self.pair {
            Pair::Rsa(key) => sign_rsa(key, &RSA_PKCS1_SHA256, input),
            Pair::Ecdsa { key, .. } => sign_ecdsa(key, input),
            // The served string's own bytes are the secret.
            Pair::Hmac(secret) => mac(hmac::HMAC_SHA256, secret.as_bytes(), input),
        }
    }

    /// A signature of the right key by a neighbouring algorithm of its family; empty where the family
    /// has none.
    pub fn sign_with_neighbour(&self, neighbour: Neighbour, input: &[u8]) -> Vec<u8> {
        match (&self.pair, neighbour) {
            (Pair::Rsa(key), Neighbour::Sha384) => sign_rsa(key, &RSA_PKCS1_SHA384, input),
            (Pair::Rsa(key), Neighbour::Sha512) => sign_rsa(key, &RSA_PKCS1_SHA512, input),
            (Pair::Rsa(key), Neighbour::Pss) => sign_rsa(key, &RSA_PSS_SHA256, input),
            (Pair::Hmac(secret), Neighbour::Sha384) => {
                mac(hmac::HMAC_SHA384, secret.as_bytes(), input)
            }
            (Pair::Hmac(secret), Neighbour::Sha512) => {
                mac(hmac::HMAC_SHA512, secret.as_bytes(), input)
            }
            (Pair::Ecdsa { der, .. }, Neighbour::Der) => sign_ecdsa(der, input),
            _ => Vec::new(),
        }
    }
}

/// Algorithms that a key could be talked into.
#[derive(Debug, Clone, Copy)]
pub enum Neighbour {
    /// RS384, HS384
    Sha384,
    /// RS512, HS512
    Sha512,
    /// PS256
    Pss,
    /// ES256 in ASN.1 DER instead of the fixed 64 bytes
    Der,
}

/// HMAC-SHA256 with any bytes as the secret: what a forger does with a public key.
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

fn generate_rsa() -> Result<SigningKey, Unspecified> {
    let key = rsa::KeyPair::generate(KeySize::Rsa2048)?;
    let public: PublicKeyX509Der<'_> = key.public_key().as_der()?;
    let public_der = public.as_ref().to_vec();
    let private_der = AsDer::as_der(&key)?.as_ref().to_vec();
    Ok(SigningKey {
        pair: Pair::Rsa(key),
        public_der,
        private_der,
    })
}

/// The same pair twice, because the encoding of a signature is a property of the key object.
fn generate_ecdsa() -> Result<SigningKey, Unspecified> {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
    let document = key.to_pkcs8v1()?;
    let private_der = document.as_ref().to_vec();
    let der = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &private_der)
        .map_err(|_| Unspecified)?;
    let public: PublicKeyX509Der<'_> = key.public_key().as_der()?;
    let public_der = public.as_ref().to_vec();
    Ok(SigningKey {
        pair: Pair::Ecdsa { key, der },
        public_der,
        private_der,
    })
}

fn generate_secret() -> Result<SigningKey, Unspecified> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes)?;
    let secret = URL_SAFE_NO_PAD.encode(bytes);
    Ok(SigningKey {
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
