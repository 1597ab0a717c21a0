//! Key pairs of the harness, one for each signing type, and every way to sign with them – the
//! wrong ways too.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
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
pub struct SigningKey(Pair);

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
    pub fn generate(signing_type: SigningType) -> Self {
        Self(match signing_type {
            SigningType::Rsa => {
                Pair::Rsa(rsa::KeyPair::generate(KeySize::Rsa2048).expect("an RSA key"))
            }
            SigningType::Ecdsa => generate_ecdsa(),
            SigningType::Hmac => {
                let mut secret = [0; 32];
                rand::fill(&mut secret).expect("random bytes");
                Pair::Hmac(URL_SAFE_NO_PAD.encode(secret))
            }
        })
    }

    /// Which type it is.
    pub const fn signing_type(&self) -> SigningType {
        match self.0 {
            Pair::Rsa(_) => SigningType::Rsa,
            Pair::Ecdsa { .. } => SigningType::Ecdsa,
            Pair::Hmac(_) => SigningType::Hmac,
        }
    }

    /// The string that the contract's key endpoint serves: a PEM, or the shared secret.
    pub fn served(&self) -> String {
        match &self.0 {
            Pair::Hmac(secret) => secret.clone(),
            Pair::Rsa(_) | Pair::Ecdsa { .. } => pem("PUBLIC KEY", &self.public_der()),
        }
    }

    /// The public half as SubjectPublicKeyInfo; the bytes of the secret for hmac.
    ///
    /// # Panics
    /// When the key cannot be encoded.
    pub fn public_der(&self) -> Vec<u8> {
        let der: PublicKeyX509Der<'_> = match &self.0 {
            Pair::Rsa(key) => key.public_key().as_der().expect("an SPKI"),
            Pair::Ecdsa { key, .. } => key.public_key().as_der().expect("an SPKI"),
            Pair::Hmac(secret) => return secret.as_bytes().to_vec(),
        };
        der.as_ref().to_vec()
    }

    /// The private half as a PKCS#8 PEM; the secret for hmac.
    ///
    /// # Panics
    /// When the key cannot be encoded.
    pub fn private(&self) -> String {
        match &self.0 {
            Pair::Rsa(key) => pem(
                "PRIVATE KEY",
                AsDer::as_der(key).expect("a PKCS#8").as_ref(),
            ),
            Pair::Ecdsa { key, .. } => {
                pem("PRIVATE KEY", key.to_pkcs8v1().expect("a PKCS#8").as_ref())
            }
            Pair::Hmac(secret) => secret.clone(),
        }
    }

    /// The signature that JWS wants: RS256, ES256 or HS256.
    ///
    /// # Panics
    /// When signing fails.
    pub fn sign(&self, input: &[u8]) -> Vec<u8> {
        match &self.0 {
            Pair::Rsa(key) => sign_rsa(key, &RSA_PKCS1_SHA256, input),
            Pair::Ecdsa { key, .. } => key
                .sign(&SystemRandom::new(), input)
                .expect("a signature")
                .as_ref()
                .to_vec(),
            // The served string's own bytes are the secret.
            Pair::Hmac(secret) => mac(hmac::HMAC_SHA256, secret.as_bytes(), input),
        }
    }

    /// A signature of the right key by a neighbouring algorithm of its family.
    ///
    /// # Panics
    /// When the family has none.
    pub fn sign_with_neighbour(&self, neighbour: Neighbour, input: &[u8]) -> Vec<u8> {
        match (&self.0, neighbour) {
            (Pair::Rsa(key), Neighbour::Sha384) => sign_rsa(key, &RSA_PKCS1_SHA384, input),
            (Pair::Rsa(key), Neighbour::Sha512) => sign_rsa(key, &RSA_PKCS1_SHA512, input),
            (Pair::Rsa(key), Neighbour::Pss) => sign_rsa(key, &RSA_PSS_SHA256, input),
            (Pair::Hmac(secret), Neighbour::Sha384) => {
                mac(hmac::HMAC_SHA384, secret.as_bytes(), input)
            }
            (Pair::Hmac(secret), Neighbour::Sha512) => {
                mac(hmac::HMAC_SHA512, secret.as_bytes(), input)
            }
            (Pair::Ecdsa { der, .. }, Neighbour::Der) => der
                .sign(&SystemRandom::new(), input)
                .expect("a signature")
                .as_ref()
                .to_vec(),
            (_, neighbour) => panic!("{:?} has no {neighbour:?}", self.signing_type()),
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

/// The same pair twice, because the encoding of a signature is a property of the key object.
fn generate_ecdsa() -> Pair {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("an ECDSA key");
    let document = key.to_pkcs8v1().expect("a PKCS#8");
    let der = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref())
        .expect("the same key");
    Pair::Ecdsa { key, der }
}

fn sign_rsa(key: &rsa::KeyPair, encoding: &'static dyn RsaEncoding, input: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(encoding, &SystemRandom::new(), input, &mut signature)
        .expect("a signature");
    signature
}

fn mac(algorithm: hmac::Algorithm, secret: &[u8], input: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(algorithm, secret), input)
        .as_ref()
        .to_vec()
}
