//! Grants of users and applications beyond their identity: scope, audience and further claims.
//!
//! Everything is validated where it is read, so that a token never carries what a verifier could
//! take for another claim.

mod claims;
mod scope;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub(crate) use self::claims::{FurtherClaims, InvalidClaims, NamedClaim};
pub(crate) use self::scope::Scope;

/// Names of services are short; longer ones would only fill tokens.
const MAX_AUDIENCE_CHARACTERS: usize = 256;

/// One recipient of tokens (`aud`): 1 to 256 characters without white space or control characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Audience(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an audience has 1 to {MAX_AUDIENCE_CHARACTERS} characters and no white space")]
pub(crate) struct InvalidAudience;

impl TryFrom<String> for Audience {
    type Error = InvalidAudience;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let plain = |c: char| !c.is_whitespace() && !c.is_control();
        let fits = (1..=MAX_AUDIENCE_CHARACTERS).contains(&text.chars().count());
        if fits && text.chars().all(plain) {
            Ok(Self(text))
        } else {
            Err(InvalidAudience)
        }
    }
}

impl FromStr for Audience {
    type Err = InvalidAudience;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.to_owned().try_into()
    }
}

impl fmt::Display for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Scope, audience and further claims of one user or application.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    #[serde(default, skip_serializing_if = "Scope::is_empty")]
    pub(crate) scope: Scope,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) audience: Vec<Audience>,
    #[serde(default, skip_serializing_if = "FurtherClaims::is_empty")]
    pub(crate) claims: FurtherClaims,
}

impl Grant {
    /// Returns the audience as it stands in a token.
    pub(crate) fn audience_names(&self) -> Vec<String> {
        self.audience.iter().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_audience_is_one_word() {
        for text in ["orders", "https://api.example/orders", "größe"] {
            assert_eq!(text.parse::<Audience>().unwrap().to_string(), text);
        }
        let long = "x".repeat(257);
        for text in ["", "a b", "a\nb", &long] {
            assert_eq!(text.parse::<Audience>(), Err(InvalidAudience), "{text:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_and_what_is_absent_is_left_out() {
        let json = r#"{"scope":"a b","audience":["orders"],"claims":{"tenant":"t1"}}"#;
        let grant: Grant = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&grant).unwrap(), json);
        assert_eq!(serde_json::to_string(&Grant::default()).unwrap(), "{}");
        for json in [
            r#"{"scope":""}"#,
            r#"{"audience":["a b"]}"#,
            r#"{"claims":{"iss":"me"}}"#,
        ] {
            assert!(serde_json::from_str::<Grant>(json).is_err(), "{json}");
        }
    }
}
