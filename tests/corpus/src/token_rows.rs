//! Rows of `attack_tokens.toml`, and their `Authorization` lines.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::keys::{Algorithm, Family};
use crate::template::{fill, number};
use crate::token_forge::{Forge, Signature, claims, encode, lay_over, signing_input};

/// `attack_tokens.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenTable {
    /// Requests, each with its verdict.
    pub token: Vec<TokenRow>,
}

impl TokenTable {
    /// Parses the table.
    ///
    /// # Errors
    /// Never in a program whose tests have passed.
    pub fn load() -> Result<Self, toml::de::Error> {
        toml::from_str(include_str!("../data/attack_tokens.toml"))
    }
}

/// Verifier settings of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The defaults: `exp` required, 30 seconds of leeway.
    #[default]
    Default,
    /// `--issuer auth`
    Issuer,
    /// `--audience orders,stock`
    Audience,
    /// `--allow-no-exp`
    NoExpiry,
    /// `--accept-bound-tokens on`
    Bound,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 5] = [
        Self::Default,
        Self::Issuer,
        Self::Audience,
        Self::NoExpiry,
        Self::Bound,
    ];

    /// Returns the sidecar's flags for it.
    pub const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::Issuer => &["--issuer", "auth"],
            Self::Audience => &["--audience", "orders,stock"],
            Self::NoExpiry => &["--allow-no-exp"],
            Self::Bound => &["--accept-bound-tokens", "on"],
        }
    }
}

/// Form in which the verifier holds the trusted key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeySetShape {
    /// One key without a name, as in the contract's endpoint.
    #[default]
    Nameless,
    /// Keys selected by `kid`, as in a JWKS.
    Named,
}

/// The issuer and the audience of [`Policy::flags`].
const ISSUER: &str = "auth";
const AUDIENCE: &str = "orders";
/// The defaults of the sidecar: seconds, and bytes of an `Authorization` value.
const LEEWAY: i64 = 30;
const CAP: i64 = 16 * 1024;

/// The moment and the key of a request.
#[derive(Debug, Clone, Copy)]
struct Setting<'k> {
    /// Seconds since the epoch.
    now: i64,
    /// The `kid` of the trusted key.
    kid: &'k str,
}

impl Setting<'_> {
    fn number(&self, sum: &str) -> Option<i64> {
        number(sum, |name| match name {
            "now" => Some(self.now),
            "leeway" => Some(LEEWAY),
            "cap" => Some(CAP),
            _ => None,
        })
    }

    /// Replaces the placeholders that are valid in every part of a row.
    fn fill(&self, text: &str, named: impl Fn(&str) -> Option<Vec<u8>>) -> Vec<u8> {
        fill(text, |placeholder| {
            let repeated = || {
                let (count, text) = placeholder.strip_prefix("repeat:")?.split_once(':')?;
                let count = usize::try_from(self.number(count)?.max(0)).ok()?;
                Some(text.repeat(count).into_bytes())
            };
            let known = match placeholder {
                "kid" => Some(self.kid.as_bytes().to_vec()),
                "issuer" => Some(ISSUER.into()),
                "issuer:swapped" => Some(ISSUER.to_ascii_uppercase().into()),
                "audience" => Some(AUDIENCE.into()),
                sum => self
                    .number(sum)
                    .map(|number| number.to_string().into_bytes()),
            };
            named(placeholder).or(known).or_else(repeated)
        })
    }
}

/// Algorithms of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Tried {
    Family(Family),
    Algorithm(Algorithm),
}

/// A row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRow {
    /// The statement that the row tests.
    pub name: String,
    /// Source of the attack: a lesson, an RFC, an advisory.
    pub source: String,
    /// The row's algorithms, by name or by family; all of them where left out.
    #[serde(default)]
    signing: Vec<Tried>,
    /// The verifier's settings.
    #[serde(default)]
    pub policy: Policy,
    /// Form of the verifier's key. `named` rows run against `crates/token` and the auth server,
    /// which knows its keys by name; the sidecar of the table uses a server without a key set.
    #[serde(default)]
    pub keys: KeySetShape,
    /// The JOSE header as text; `{"alg":"<the key's>","typ":"JWT"}` where left out.
    header: Option<String>,
    /// The payload as text; good claims where left out.
    payload: Option<String>,
    /// JSON with changes to the good claims; a null removes one.
    change: Option<String>,
    /// Kind of signature.
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
    /// The verdict for named keys, if it differs.
    expect_named: Option<String>,
}

impl TokenRow {
    /// Returns the header lines with the request's credentials.
    pub fn header_lines(&self, forge: &Forge, kid: &str, now: i64) -> Vec<Vec<u8>> {
        let setting = Setting { now, kid };
        let payload = self.payload(setting);
        let token = self.token(forge, setting, &payload);
        let named = |name: &str| (name == "token").then(|| token.clone());
        match &self.lines {
            Some(lines) => lines.iter().map(|line| setting.fill(line, named)).collect(),
            None => vec![setting.fill("Authorization: Bearer {{token}}", named)],
        }
    }

    /// Returns true if the row applies to tokens of this algorithm.
    pub fn is_tried_with(&self, algorithm: impl Into<Algorithm>) -> bool {
        let algorithm = algorithm.into();
        let is_meant = |tried: &Tried| match *tried {
            Tried::Family(family) => family == algorithm.family(),
            Tried::Algorithm(named) => named == algorithm,
        };
        self.signing.is_empty() || self.signing.iter().any(is_meant)
    }

    /// Returns the key forms that the row applies to.
    pub fn shapes(&self) -> Vec<KeySetShape> {
        match (self.keys, &self.expect_named) {
            (KeySetShape::Nameless, Some(_)) => vec![KeySetShape::Nameless, KeySetShape::Named],
            (shape, _) => vec![shape],
        }
    }

    /// Returns `accepted`, or status and reason code, for this key form.
    pub fn expected(&self, shape: KeySetShape) -> &str {
        match (shape, &self.expect_named) {
            (KeySetShape::Named, Some(expected)) => expected,
            _ => &self.expect,
        }
    }

    /// Returns status and reason code; `None` when the row must be accepted.
    pub fn rejection(&self) -> Option<(u16, &str)> {
        let (status, reason) = self.expect.split_once(' ')?;
        Some((status.parse().ok()?, reason))
    }

    fn token(&self, forge: &Forge, setting: Setting<'_>, payload: &[u8]) -> Vec<u8> {
        let algorithm = forge.trusted().algorithm().name();
        let header = self.header.as_ref().map_or_else(
            || forge.plain_header().into_bytes(),
            |text| {
                setting.fill(text, |name| match name {
                    "alg" => Some(algorithm.as_bytes().to_vec()),
                    "untrusted" => Some(encode(&forge.untrusted().public_der()).into_bytes()),
                    _ => None,
                })
            },
        );
        let input = signing_input(&header, payload);
        let signature = encode(&forge.sign(self.signature, &input));
        let form = self
            .token
            .as_deref()
            .unwrap_or("{{header}}.{{payload}}.{{signature}}");
        setting.fill(form, |part| match part {
            "header" => Some(encode(&header).into_bytes()),
            "payload" => Some(encode(payload).into_bytes()),
            "signature" => Some(signature.clone().into_bytes()),
            _ => None,
        })
    }

    fn payload(&self, setting: Setting<'_>) -> Vec<u8> {
        if let Some(text) = &self.payload {
            return setting.fill(text, |_| None);
        }
        let mut claims = claims(setting.now, &json!({"iss": ISSUER}));
        if let Some(change) = self.change(setting) {
            lay_over(&mut claims, &change);
        }
        claims.to_string().into_bytes()
    }

    fn change(&self, setting: Setting<'_>) -> Option<Value> {
        let text = setting.fill(self.change.as_ref()?, |_| None);
        serde_json::from_slice(&text).ok()
    }
}
