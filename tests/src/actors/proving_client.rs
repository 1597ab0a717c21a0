//! A client that holds a key, to which its tokens are bound, and that proves it (RFC 9449).

use std::sync::atomic::{AtomicUsize, Ordering};

use postern_token::digest::sha256;
use serde_json::{Value, json};
use token_corpus::keys::Algorithm;
use token_corpus::proof_rows::{ProofRow, ProofSetting};

use crate::actors::token_forge::Forge;
use crate::wire::clock;

/// The client.
#[derive(Debug)]
pub struct ProvingClient {
    key: Forge,
    made: AtomicUsize,
}

impl ProvingClient {
    /// Generates a key.
    pub fn new(algorithm: Algorithm) -> Self {
        Self {
            key: Forge::new(algorithm),
            made: AtomicUsize::new(0),
        }
    }

    /// Returns the confirmation of tokens that are bound to the key.
    pub fn cnf(&self) -> Value {
        json!({"jkt": self.jkt()})
    }

    /// Returns the thumbprint of the key.
    pub fn jkt(&self) -> String {
        self.key.trusted().thumbprint()
    }

    /// Returns the header lines with a token and a proof for it.
    pub fn lines(&self, method: &str, url: &str, token: &str) -> [String; 2] {
        self.lines_with(method, url, token, &Value::Null)
    }

    /// Returns the header lines as `lines`, with `changes` to the claims of the proof (null removes
    /// one).
    pub fn lines_with(&self, method: &str, url: &str, token: &str, changes: &Value) -> [String; 2] {
        [
            format!("Authorization: DPoP {token}"),
            format!("DPoP: {}", self.proof(method, url, token, changes)),
        ]
    }

    /// Returns a proof with a `jti` of its own.
    ///
    /// # Panics
    /// Never: a proof is text.
    pub fn proof(&self, method: &str, url: &str, token: &str, changes: &Value) -> String {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let row = ProofRow::changed(&format!("proof {number}"), changes);
        String::from_utf8(self.field(&row, method, url, token)).expect("a text")
    }

    /// Returns the field of a row.
    pub fn field(&self, row: &ProofRow, method: &str, url: &str, token: &str) -> Vec<u8> {
        let setting = ProofSetting {
            method,
            url,
            token: &sha256(token.as_bytes()),
            now: clock::now(),
        };
        row.field(&self.key, setting)
    }
}
