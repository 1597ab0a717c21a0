//! `attack_tokens.toml`: how each row's `Authorization` lines are made.

use serde::Deserialize;
use serde_json::Value;

use crate::keys::SigningType;
use crate::template::{fill, moment};
use crate::token_forge::{Forge, Signature, claims, encode, lay_over, signing_input};

/// `attack_tokens.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenTable {
    /// Requests, each with its verdict.
    pub token: Vec<TokenRow>,
}

/// The settings of the verifier that a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The defaults: `exp` required, 30 seconds of leeway.
    #[default]
    Default,
    /// `--issuer auth`
    Issuer,
    /// `--audience orders`
    Audience,
    /// `--allow-no-exp`
    NoExpiry,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Default, Self::Issuer, Self::Audience, Self::NoExpiry];

    /// The sidecar's flags for it.
    pub const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::Issuer => &["--issuer", "auth"],
            Self::Audience => &["--audience", "orders"],
            Self::NoExpiry => &["--allow-no-exp"],
        }
    }
}

/// How the trusted key is known to the verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeySetShape {
    /// One key without a name, as the contract's endpoint gives it.
    #[default]
    Nameless,
    /// Keys that are selected by `kid`, as a JWKS gives them.
    Named,
}

/// One row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRow {
    /// The statement.
    pub name: String,
    /// Where it comes from: a lesson, an RFC, an advisory.
    pub source: String,
    /// The signing types it is tried with; all three where left out.
    #[serde(default = "all_types")]
    pub signing: Vec<SigningType>,
    /// The verifier's settings.
    #[serde(default)]
    pub policy: Policy,
    /// How the key is known. `named` rows are tried on the contract crate and on the auth server,
    /// which knows its keys by name; the sidecar of the table is fed by a server without key set.
    #[serde(default)]
    pub keys: KeySetShape,
    /// The JOSE header as text; `{"alg":"<the key's>","typ":"JWT"}` where left out.
    header: Option<String>,
    /// The payload as text; good claims where left out.
    payload: Option<String>,
    /// JSON laid over the good claims; a null removes one.
    change: Option<String>,
    /// How it is signed.
    #[serde(default)]
    signature: Signature,
    /// The token's form; `{{header}}.{{payload}}.{{signature}}` where left out.
    token: Option<String>,
    /// Header lines; `Authorization: Bearer {{token}}` where left out.
    lines: Option<Vec<String>>,
    /// The query string of the request.
    pub query: Option<String>,
    /// `accepted`, or status and reason code: `401 token_signature`.
    pub expect: String,
    /// The verdict where keys have names, if that is another.
    expect_named: Option<String>,
}

impl TokenRow {
    /// The request's credentials, as header lines.
    ///
    /// # Panics
    /// When the row is not well formed.
    pub fn header_lines(&self, forge: &Forge, kid: &str, now: i64) -> Vec<Vec<u8>> {
        let token = self.token(forge, kid, now);
        let named = |name: &str| (name == "token").then(|| token.clone());
        match &self.lines {
            Some(lines) => lines.iter().map(|line| fill(line, named)).collect(),
            None => vec![fill("Authorization: Bearer {{token}}", named)],
        }
    }

    /// The shapes in which the key is known that this row is about.
    pub fn shapes(&self) -> Vec<KeySetShape> {
        match (self.keys, &self.expect_named) {
            (KeySetShape::Nameless, Some(_)) => vec![KeySetShape::Nameless, KeySetShape::Named],
            (shape, _) => vec![shape],
        }
    }

    /// `accepted`, or status and reason code, where keys are known so.
    pub fn expected(&self, shape: KeySetShape) -> &str {
        match (shape, &self.expect_named) {
            (KeySetShape::Named, Some(expected)) => expected,
            _ => &self.expect,
        }
    }

    /// `None` when the row must be accepted, else status and reason code.
    ///
    /// # Panics
    /// When the row is not well formed.
    pub fn refusal(&self) -> Option<(u16, &str)> {
        if self.expect == "accepted" {
            return None;
        }
        let (status, reason) = self
            .expect
            .split_once(' ')
            .expect("`accepted` or `STATUS reason`");
        Some((status.parse().expect("a status"), reason))
    }

    fn token(&self, forge: &Forge, kid: &str, now: i64) -> Vec<u8> {
        let named = |name: &str| match name {
            "alg" => Some(
                forge
                    .trusted()
                    .signing_type()
                    .algorithm()
                    .as_bytes()
                    .to_vec(),
            ),
            "kid" => Some(kid.as_bytes().to_vec()),
            "stranger" => Some(encode(&forge.stranger().public_der()).into_bytes()),
            other => moment(other, now),
        };
        let header = self.header.as_ref().map_or_else(
            || forge.plain_header().into_bytes(),
            |text| fill(text, named),
        );
        let payload = self
            .payload
            .as_ref()
            .map_or_else(|| self.claims(now), |text| fill(text, named));
        let input = signing_input(&header, &payload);
        let signature = encode(&forge.sign(self.signature, &input));
        let form = self
            .token
            .as_deref()
            .unwrap_or("{{header}}.{{payload}}.{{signature}}");
        fill(form, |part| match part {
            "header" => Some(encode(&header).into_bytes()),
            "payload" => Some(encode(&payload).into_bytes()),
            "signature" => Some(signature.clone().into_bytes()),
            _ => None,
        })
    }

    fn claims(&self, now: i64) -> Vec<u8> {
        let mut claims = claims(now, &Value::Null);
        if let Some(text) = &self.change {
            let text = fill(text, |name| moment(name, now));
            let change = serde_json::from_slice(&text)
                .unwrap_or_else(|error| panic!("{}: `change` is not JSON: {error}", self.name));
            lay_over(&mut claims, &change);
        }
        serde_json::to_vec(&claims).expect("claims are JSON")
    }
}

fn all_types() -> Vec<SigningType> {
    SigningType::ALL.to_vec()
}
