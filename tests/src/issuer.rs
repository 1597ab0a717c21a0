//! `issuers.toml`: issuers other than the auth server, with their key sets and tokens.

use std::collections::BTreeMap;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
    RSA_PSS_SHA512,
};
use serde::Deserialize;

use crate::keys::{hmac_sha256, pem};
use crate::template::{fill, moment};
use crate::token_forge::{encode, signing_input};

/// `issuers.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerTable {
    /// The issuers.
    pub issuer: Vec<IssuerRow>,
}

/// One issuer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerRow {
    /// Name of the issuer, and heading of its command line in `docs/issuers.md`.
    pub name: String,
    /// Kind of each key (`RSA`, `P-256`, `P-384`, `Ed25519`) by its name in this table.
    pub keys: BTreeMap<String, String>,
    /// The JWK Set as text; `{{n:KEY}}` and the like stand for the members of a key.
    jwks: String,
    /// The members of its `[[issuer]]` table beside the name; `{{keys}}` stands for the address of
    /// its key set.
    #[serde(default)]
    pub config: String,
    /// Tokens, each with its verdict.
    pub token: Vec<IssuerToken>,
}

/// One token.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerToken {
    /// The statement that the token tests.
    pub name: String,
    /// Name of the signing key.
    key: String,
    /// Signing algorithm. `HS256` uses the public key's PEM as the secret.
    sign: String,
    /// The JOSE header as text.
    header: String,
    /// The payload as text; `{{now+60}}` is a time.
    payload: String,
    /// `accepted`, or status and reason code: `401 token_signature`.
    pub expect: String,
    /// User that the service receives, as JSON; only for accepted tokens.
    #[serde(default)]
    pub user: String,
    /// Parts of the output of `explain` about a rejected token.
    #[serde(default)]
    pub explains: Vec<String>,
}

impl IssuerToken {
    /// Returns the token with another payload.
    #[must_use]
    pub fn with_payload(&self, payload: impl FnOnce(&str) -> String) -> Self {
        Self {
            payload: payload(&self.payload),
            ..self.clone()
        }
    }
}

/// An issuer with generated keys.
#[derive(Debug)]
pub struct Issuer {
    keys: BTreeMap<String, IssuerKey>,
}

#[derive(Debug)]
enum IssuerKey {
    Rsa(rsa::KeyPair),
    Ec(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Issuer {
    /// Generates the keys of a row.
    ///
    /// # Panics
    /// When a kind is unknown.
    pub fn new(row: &IssuerRow) -> Self {
        let keys = row.keys.iter();
        let keys = keys.map(|(name, kind)| (name.clone(), IssuerKey::generate(kind)));
        Self {
            keys: keys.collect(),
        }
    }

    /// Returns the key set of the row.
    ///
    /// # Panics
    /// When a placeholder is unknown.
    pub fn jwks(&self, row: &IssuerRow) -> String {
        let filled = fill(&row.jwks, |placeholder| {
            let (member, key) = placeholder.split_once(':')?;
            let value = self.keys.get(key)?.member(member)?;
            Some(encode(&value).into_bytes())
        });
        String::from_utf8(filled).expect("a key set is text")
    }

    /// Returns the public half of a key in PEM.
    pub fn public_pem(&self, key: &str) -> String {
        self.key(key).public_pem()
    }

    /// Returns a token of the table.
    ///
    /// # Panics
    /// When the row is not well formed.
    pub fn token(&self, token: &IssuerToken, now: i64) -> String {
        let named = |name: &str| moment(name, now);
        let input = signing_input(&fill(&token.header, named), &fill(&token.payload, named));
        let signature = self.key(&token.key).sign(&token.sign, input.as_bytes());
        format!("{input}.{}", encode(&signature))
    }

    fn key(&self, name: &str) -> &IssuerKey {
        self.keys
            .get(name)
            .unwrap_or_else(|| panic!("the issuer has no key {name}"))
    }
}

impl IssuerKey {
    fn generate(kind: &str) -> Self {
        match kind {
            "RSA" => Self::Rsa(rsa::KeyPair::generate(KeySize::Rsa2048).expect("an RSA key")),
            "P-256" => Self::Ec(
                EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a P-256 key"),
            ),
            "P-384" => Self::Ec(
                EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("a P-384 key"),
            ),
            "Ed25519" => Self::Ed25519(Ed25519KeyPair::generate().expect("an Ed25519 key")),
            other => panic!("unknown kind of key {other}"),
        }
    }

    /// Returns a member of the key's JWK (RFC 7518 §6, RFC 8037 §2), not yet encoded.
    fn member(&self, name: &str) -> Option<Vec<u8>> {
        match (self, name) {
            (Self::Rsa(key), "n") => Some(rsa_integers(key.public_key().as_ref()).0),
            (Self::Rsa(_), "0n") => Some([&[0][..], &self.member("n")?].concat()),
            (Self::Rsa(key), "e") => Some(rsa_integers(key.public_key().as_ref()).1),
            (Self::Ec(key), "x" | "y") => {
                // An uncompressed point: 4, x, y (SEC 1 §2.3.3).
                let point = key.public_key().as_ref().get(1..)?;
                let (x, y) = point.split_at(point.len() / 2);
                Some(if name == "x" { x } else { y }.to_vec())
            }
            (Self::Ed25519(key), "x") => Some(key.public_key().as_ref().to_vec()),
            _ => None,
        }
    }

    fn public_pem(&self) -> String {
        let der: PublicKeyX509Der<'_> = match self {
            Self::Rsa(key) => key.public_key().as_der(),
            Self::Ec(key) => key.public_key().as_der(),
            Self::Ed25519(key) => key.public_key().as_der(),
        }
        .expect("an SPKI");
        pem("PUBLIC KEY", der.as_ref())
    }

    fn sign(&self, algorithm: &str, input: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match (self, algorithm) {
            (_, "HS256") => hmac_sha256(self.public_pem().as_bytes(), input),
            (_, "none") => Vec::new(),
            (Self::Rsa(key), algorithm) => {
                let encoding = match algorithm {
                    "RS256" => &RSA_PKCS1_SHA256,
                    "RS384" => &RSA_PKCS1_SHA384,
                    "RS512" => &RSA_PKCS1_SHA512,
                    "PS256" => &RSA_PSS_SHA256,
                    "PS384" => &RSA_PSS_SHA384,
                    "PS512" => &RSA_PSS_SHA512,
                    other => panic!("an RSA key does not sign with {other}"),
                };
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(encoding, &random, input, &mut signature)
                    .expect("a signature");
                signature
            }
            (Self::Ec(key), _) => {
                let signature = key.sign(&random, input).expect("a signature");
                signature.as_ref().to_vec()
            }
            (Self::Ed25519(key), _) => key.sign(input).as_ref().to_vec(),
        }
    }
}

/// Reads `RSAPublicKey ::= SEQUENCE { modulus INTEGER, publicExponent INTEGER }` (RFC 8017 §A.1.1),
/// both without the zero that keeps them positive.
fn rsa_integers(der: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (sequence, _) = der_value(der);
    let (modulus, rest) = der_value(sequence);
    let (exponent, _) = der_value(rest);
    let unsigned = |bytes: &[u8]| bytes.strip_prefix(&[0]).unwrap_or(bytes).to_vec();
    (unsigned(modulus), unsigned(exponent))
}

/// Returns the content of the first DER value, and the bytes behind it.
fn der_value(der: &[u8]) -> (&[u8], &[u8]) {
    let first = usize::from(der[1]);
    let (start, length) = if first < 0x80 {
        (2, first)
    } else {
        let digits = &der[2..2 + (first & 0x7f)];
        let length = digits
            .iter()
            .fold(0, |sum, digit| sum << 8 | usize::from(*digit));
        (2 + digits.len(), length)
    };
    der[start..].split_at(length)
}
