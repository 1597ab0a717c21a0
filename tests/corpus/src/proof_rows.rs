//! Rows of `proofs.toml`, and the `DPoP` fields that they describe (RFC 9449).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::template::{fill, number};
use crate::token_forge::{Forge, Signature, encode, lay_over, signing_input};

/// `proofs.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProofTable {
    /// Proofs, each with its verdict.
    pub proof: Vec<ProofRow>,
}

impl ProofTable {
    /// Parses the table.
    ///
    /// # Errors
    /// Never in a program whose tests have passed.
    pub fn load() -> Result<Self, toml::de::Error> {
        toml::from_str(include_str!("../data/proofs.toml"))
    }
}

/// A request, for which a good proof is made.
#[derive(Debug, Clone, Copy)]
pub struct ProofSetting<'a> {
    /// The method.
    pub method: &'a str,
    /// The URL, without a query.
    pub url: &'a str,
    /// The SHA-256 of the token.
    pub token: &'a [u8],
    /// Seconds since the epoch.
    pub now: i64,
}

/// A row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProofRow {
    /// The statement that the row tests.
    pub name: String,
    /// Where it comes from: a section of an RFC, an attack.
    pub source: String,
    /// The JOSE header as text; `{"typ":"dpop+jwt","alg":"{{alg}}","jwk":{{jwk}}}` where left out.
    header: Option<String>,
    /// The payload as text; good claims where left out.
    payload: Option<String>,
    /// JSON with changes to the good claims; a null removes one.
    change: Option<String>,
    /// Kind of signature.
    #[serde(default)]
    signature: Signature,
    /// The value of the field; `{{proof}}` where left out.
    field: Option<String>,
    /// `accepted`, or status and reason code: `401 proof_signature`.
    pub expect: String,
}

impl ProofRow {
    /// Returns the row of a good proof with this `jti`, and with changes to its claims (null removes one).
    #[must_use]
    pub fn changed(jti: &str, change: &Value) -> Self {
        Self {
            name: jti.to_owned(),
            source: String::new(),
            header: None,
            payload: None,
            change: Some(change.to_string()),
            signature: Signature::Good,
            field: None,
            expect: String::new(),
        }
    }

    /// Returns the value of the field. Each proof has a `jti` of its own.
    #[must_use]
    pub fn field(&self, forge: &Forge, setting: ProofSetting<'_>) -> Vec<u8> {
        let filled = |text: &str| fill_with(text, forge, setting);
        let header = self.header.as_deref();
        let header =
            filled(header.unwrap_or(r#"{"typ":"dpop+jwt","alg":"{{alg}}","jwk":{{jwk}}}"#));
        let payload = match &self.payload {
            Some(text) => filled(text),
            None => self.claims(filled, setting).to_string().into_bytes(),
        };
        let input = signing_input(&header, &payload);
        let signature = encode(&forge.sign(self.signature, &input));
        let proof = format!("{input}.{signature}");
        fill(self.field.as_deref().unwrap_or("{{proof}}"), |name| {
            (name == "proof").then(|| proof.clone().into_bytes())
        })
    }

    fn claims(&self, filled: impl Fn(&str) -> Vec<u8>, setting: ProofSetting<'_>) -> Value {
        let mut claims = json!({
            "jti": self.name, "htm": setting.method, "htu": setting.url, "iat": setting.now,
            "ath": encode(setting.token),
        });
        if let Some(change) = &self.change
            && let Ok(change) = serde_json::from_slice(&filled(change))
        {
            lay_over(&mut claims, &change);
        }
        claims
    }
}

fn fill_with(text: &str, forge: &Forge, setting: ProofSetting<'_>) -> Vec<u8> {
    fill(text, |name| match name {
        "alg" => Some(forge.trusted().algorithm().name().as_bytes().to_vec()),
        "jwk" => Some(forge.trusted().public_jwk().to_string().into_bytes()),
        // The members of the key, for a row that adds some.
        "members" => {
            let jwk = forge.trusted().public_jwk().to_string();
            jwk.get(1..jwk.len() - 1).map(Into::into)
        }
        "ath" => Some(encode(setting.token).into_bytes()),
        "url" => Some(setting.url.as_bytes().to_vec()),
        sum => number(sum, |name| (name == "now").then_some(setting.now))
            .map(|number| number.to_string().into_bytes()),
    })
}
