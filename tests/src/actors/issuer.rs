//! `issuers.toml`: issuers other than the auth server, with their key sets and tokens.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::actors::token_forge::{encode, signing_input};
use crate::keys::{Algorithm, Family, SigningKey, hmac_sha256};
use crate::tables::template::{fill, moment};

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
    /// Parts of the output of `explain` about the token.
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
    keys: BTreeMap<String, SigningKey>,
}

impl Issuer {
    /// Generates the keys of a row.
    ///
    /// # Panics
    /// When a kind is unknown.
    pub fn new(row: &IssuerRow) -> Self {
        let key = |kind: &String| match kind.as_str() {
            "RSA" => SigningKey::generate(Algorithm::RS256),
            "P-256" => SigningKey::generate(Algorithm::ES256),
            "P-384" => SigningKey::generate(Algorithm::ES384),
            "Ed25519" => SigningKey::generate(Algorithm::EdDSA),
            other => panic!("unknown kind of key {other}"),
        };
        let keys = row.keys.iter();
        let keys = keys.map(|(name, kind)| (name.clone(), key(kind)));
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
            let (name, key) = placeholder.split_once(':')?;
            let value = member(self.keys.get(key)?, name)?;
            Some(encode(&value).into_bytes())
        });
        String::from_utf8(filled).expect("a key set is text")
    }

    /// Returns the public half of a key in PEM.
    pub fn public_pem(&self, key: &str) -> String {
        self.key(key).served()
    }

    /// Returns a token of the table.
    ///
    /// # Panics
    /// When the row is not well formed.
    pub fn token(&self, token: &IssuerToken, now: i64) -> String {
        let named = |name: &str| moment(name, now);
        let text = signing_input(&fill(&token.header, named), &fill(&token.payload, named));
        let (key, input) = (self.key(&token.key), text.as_bytes());
        let signature = match token.sign.as_str() {
            "HS256" => hmac_sha256(key.served().as_bytes(), input),
            "none" => Vec::new(),
            name if key.algorithm().family() == Family::Rsa => {
                let mut all = Algorithm::VERIFIED.into_iter();
                let named = all.find(|algorithm| algorithm.name() == name);
                key.sign_as(named.expect("an algorithm"), input)
            }
            _ => key.sign(input),
        };
        format!("{text}.{}", encode(&signature))
    }

    fn key(&self, name: &str) -> &SigningKey {
        self.keys
            .get(name)
            .unwrap_or_else(|| panic!("the issuer has no key {name}"))
    }
}

/// Returns a member of a key's JWK (RFC 7518 §6, RFC 8037 §2), not yet encoded. Their bytes are at the
/// end of the SubjectPublicKeyInfo.
fn member(key: &SigningKey, name: &str) -> Option<Vec<u8>> {
    const MODULUS: usize = 256;
    /// Behind the modulus: an INTEGER of three bytes.
    const EXPONENT: usize = 5;
    let der = key.public_der();
    let before_end = |start: usize, end: usize| {
        let bytes = der.get(der.len() - start..der.len() - end);
        bytes.map(<[u8]>::to_vec)
    };
    match (key.algorithm(), name) {
        (Algorithm::RS256, "n") => before_end(MODULUS + EXPONENT, EXPONENT),
        (Algorithm::RS256, "0n") => Some([&[0][..], &member(key, "n")?].concat()),
        (Algorithm::RS256, "e") => before_end(3, 0),
        (Algorithm::ES256, "x") => before_end(64, 32),
        (Algorithm::ES384, "x") => before_end(96, 48),
        (Algorithm::ES256, "y") | (Algorithm::EdDSA, "x") => before_end(32, 0),
        (Algorithm::ES384, "y") => before_end(48, 0),
        _ => None,
    }
}
