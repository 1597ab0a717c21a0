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
    /// `--audience orders`
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
            Self::Audience => &["--audience", "orders"],
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

/// Verifier settings that affect the rows.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The time of the request, in seconds since the epoch.
    pub now: i64,
    /// The `kid` of the trusted key.
    pub kid: String,
    /// The required issuer, or any issuer if none is required.
    pub issuer: String,
    /// The required audience, or any audience if none is required.
    pub audience: String,
    /// Allowed clock difference in seconds.
    pub leeway: i64,
    /// Max length of the `Authorization` value.
    pub cap: i64,
    /// Claims that replace those of a good token.
    pub claims: Value,
}

impl Setting {
    /// Returns the sidecar's defaults, with issuer and audience of [`Policy::flags`].
    pub fn of_defaults(kid: &str, now: i64) -> Self {
        Self {
            now,
            kid: kid.to_owned(),
            issuer: "auth".to_owned(),
            audience: "orders".to_owned(),
            leeway: 30,
            cap: 16 * 1024,
            claims: Value::Null,
        }
    }

    fn number(&self, sum: &str) -> Option<i64> {
        number(sum, |name| match name {
            "now" => Some(self.now),
            "leeway" => Some(self.leeway),
            "cap" => Some(self.cap),
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
                "issuer" => Some(json_text(&self.issuer)),
                "issuer:swapped" => Some(json_text(&swapped_case(&self.issuer))),
                "audience" => Some(json_text(&self.audience)),
                sum => self
                    .number(sum)
                    .map(|number| number.to_string().into_bytes()),
            };
            named(placeholder).or(known).or_else(repeated)
        })
    }
}

/// Escapes text for the inside of a JSON string.
fn json_text(text: &str) -> Vec<u8> {
    let quoted = Value::from(text).to_string();
    quoted.as_bytes()[1..quoted.len() - 1].to_vec()
}

/// Swaps the case; also changes a text without letters.
fn swapped_case(text: &str) -> String {
    let swap = |c: char| {
        if c.is_ascii_uppercase() {
            c.to_ascii_lowercase()
        } else {
            c.to_ascii_uppercase()
        }
    };
    let swapped: String = text.chars().map(swap).collect();
    if swapped == text {
        format!("{text} ")
    } else {
        swapped
    }
}

/// Algorithms of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Tried {
    Family(Family),
    Algorithm(Algorithm),
}

/// The finished request of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attack {
    /// Header lines with the request's credentials.
    pub lines: Vec<Vec<u8>>,
    /// Claims of the token; `None` where they are unreadable.
    pub claims: Option<Value>,
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
    /// Form of the verifier's key. `named` rows run against the crate `wire` and the auth server,
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
    /// Returns the header lines with the request's credentials under the defaults.
    pub fn header_lines(&self, forge: &Forge, kid: &str, now: i64) -> Vec<Vec<u8>> {
        self.attack(forge, &Setting::of_defaults(kid, now)).lines
    }

    /// Returns the request under `setting`.
    pub fn attack(&self, forge: &Forge, setting: &Setting) -> Attack {
        let payload = self.payload(setting);
        let token = self.token(forge, setting, &payload);
        let named = |name: &str| (name == "token").then(|| token.clone());
        let lines = match &self.lines {
            Some(lines) => lines.iter().map(|line| setting.fill(line, named)).collect(),
            None => vec![setting.fill("Authorization: Bearer {{token}}", named)],
        };
        Attack {
            lines,
            claims: serde_json::from_slice(&payload).ok(),
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

    /// Returns true for rows that depend on the algorithm: header, signature, or a plain good
    /// token.
    pub const fn is_about_the_algorithm(&self) -> bool {
        self.is_about_the_token()
            && self.payload.is_none()
            && self.change.is_none()
            && self.token.is_none()
    }

    /// Returns true for rows with a token in the usual place and a request that is otherwise
    /// normal.
    pub const fn is_about_the_token(&self) -> bool {
        self.lines.is_none()
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

    fn token(&self, forge: &Forge, setting: &Setting, payload: &[u8]) -> Vec<u8> {
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

    fn payload(&self, setting: &Setting) -> Vec<u8> {
        if let Some(text) = &self.payload {
            return setting.fill(text, |_| None);
        }
        let mut good = json!({"iss": setting.issuer});
        lay_over(&mut good, &setting.claims);
        let mut claims = claims(setting.now, &good);
        if let Some(change) = self.change(setting) {
            lay_over(&mut claims, &change);
        }
        claims.to_string().into_bytes()
    }

    fn change(&self, setting: &Setting) -> Option<Value> {
        let text = setting.fill(self.change.as_ref()?, |_| None);
        serde_json::from_slice(&text).ok()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::template::is_unfilled;

    #[test]
    fn every_row_can_be_made_and_says_what_is_expected() {
        let table = TokenTable::load().unwrap();
        assert!(table.token.len() >= 200, "the table has lost rows");
        let mut forge = Forge::new(Algorithm::RS256);
        for algorithm in Algorithm::VERIFIED {
            forge = forge.meant_for(algorithm);
            let setting = Setting::of_defaults("kid", 1_800_000_000);
            for row in &table.token {
                let name = &row.name;
                for line in row.attack(&forge, &setting).lines {
                    assert!(!is_unfilled(&line), "{name}: {}", line.escape_ascii());
                }
                for text in [&row.header, &row.payload].into_iter().flatten() {
                    let named = |name: &str| matches!(name, "alg" | "untrusted").then(Vec::new);
                    assert!(!is_unfilled(&setting.fill(text, named)), "{name}");
                }
                assert_eq!(
                    row.change.is_some(),
                    row.change(&setting).is_some(),
                    "{name}"
                );
                for expected in [Some(&row.expect), row.expect_named.as_ref()]
                    .into_iter()
                    .flatten()
                {
                    let known = expected == "accepted" || expected.split_once(' ').is_some();
                    assert!(known, "{name}: {expected}");
                }
                assert_eq!(
                    row.expect != "accepted",
                    row.rejection().is_some(),
                    "{name}"
                );
            }
        }
    }

    /// An empty signature would be rejected for another reason, a good one not at all. ECDSA and
    /// PSS signatures differ each time, so they cannot be compared.
    #[test]
    fn every_signature_is_one_and_another_than_the_good_one() {
        const SIGNS_ALIKE: [Algorithm; 5] = [
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::EdDSA,
            Algorithm::HS256,
        ];
        let table = TokenTable::load().unwrap();
        let mut forge = Forge::new(Algorithm::RS256);
        for algorithm in Algorithm::VERIFIED {
            forge = forge.meant_for(algorithm);
            let tried = table
                .token
                .iter()
                .filter(|row| row.is_tried_with(algorithm) && row.is_about_the_algorithm());
            for row in tried {
                let name = format!("{} {}", algorithm.name(), row.name);
                let made = forge.sign(row.signature, "a.b");
                let empty = row.signature == Signature::Empty;
                assert_eq!(made.is_empty(), empty, "{name}");
                if SIGNS_ALIKE.contains(&algorithm) {
                    let good = row.signature == Signature::Good;
                    assert_eq!(made == forge.sign(Signature::Good, "a.b"), good, "{name}");
                }
            }
        }
    }

    #[test]
    fn a_row_follows_the_setting() {
        let forge = Forge::new(Algorithm::HS256);
        let setting = Setting {
            issuer: "https://a\"b/".to_owned(),
            leeway: 5,
            cap: 100,
            claims: json!({"aud": "shop"}),
            ..Setting::of_defaults("kid", 1000)
        };
        let table = TokenTable::load().unwrap();
        let made = |name: &str| {
            let row = table.token.iter().find(|row| row.name == name).unwrap();
            row.attack(&forge, &setting)
        };
        let claims = |name: &str| made(name).claims.unwrap();
        assert_eq!(
            claims("issuer required: the right one")["iss"],
            setting.issuer
        );
        assert_eq!(
            claims("issuer required: another case")["iss"],
            "HTTPS://A\"B/"
        );
        assert_eq!(claims("exp at the edge of the leeway")["exp"], 995);
        assert_eq!(claims("no extraInfo")["aud"], "shop");
        let largest = &made("exactly the cap").lines[0];
        assert_eq!(largest.len(), "Authorization: ".len() + 100);
    }
}
