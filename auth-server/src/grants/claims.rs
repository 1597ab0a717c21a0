//! Further claims of a token, beside those that this program makes.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Claims that this program issues, or whose meaning a standard fixes: a value of an operator's
/// choice would deceive the verifier.
const RESERVED: &str = "iss sub aud exp nbf iat jti scope scp client_id azp act may_act cnf sid nonce acr \
     amr auth_time at_hash c_hash events username nickName userId extraInfo";

/// The claim of RFC 9068 §2.2.3.1.
const ROLES: &str = "roles";
const MAX_NAME_CHARACTERS: usize = 128;
/// With a scope and an audience of their largest sizes a token still fits into a header field.
const MAX_BYTES: usize = 2048;

/// Claims by name, as JSON values without control characters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(crate) struct FurtherClaims(Map<String, Value>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidClaims {
    #[error(
        "a claim's name has 1 to {MAX_NAME_CHARACTERS} characters, none of them a control character"
    )]
    Name,
    #[error("the claim {0} is this server's own")]
    Reserved(&'static str),
    #[error("the claim {0} is null, which is no value")]
    Null(String),
    #[error("the claim {0} holds a control character, or a date, which JSON does not have")]
    Unusable(String),
    #[error("the claim {0} stands there twice")]
    Twice(String),
    #[error("the claims have more than {MAX_BYTES} bytes of JSON")]
    TooLong,
    #[error("expected NAME=TEXT or NAME:=JSON")]
    NotAPair,
    #[error("after := has to stand JSON")]
    NotJson,
}

impl TryFrom<Map<String, Value>> for FurtherClaims {
    type Error = InvalidClaims;

    fn try_from(claims: Map<String, Value>) -> Result<Self, Self::Error> {
        for (name, value) in &claims {
            check(name, value)?;
        }
        match serde_json::to_vec(&claims) {
            Ok(json) if json.len() <= MAX_BYTES => Ok(Self(claims)),
            _ => Err(InvalidClaims::TooLong),
        }
    }
}

fn check(name: &str, value: &Value) -> Result<(), InvalidClaims> {
    let fits = (1..=MAX_NAME_CHARACTERS).contains(&name.chars().count());
    if !fits || name.contains(char::is_control) {
        return Err(InvalidClaims::Name);
    }
    if let Some(reserved) = RESERVED.split(' ').find(|reserved| *reserved == name) {
        return Err(InvalidClaims::Reserved(reserved));
    }
    if value.is_null() {
        return Err(InvalidClaims::Null(name.to_owned()));
    }
    if is_unusable(value) {
        return Err(InvalidClaims::Unusable(name.to_owned()));
    }
    Ok(())
}

/// How the TOML library passes a date on.
const TOML_DATE: &str = "$__toml_private";

fn is_unusable(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(char::is_control),
        Value::Array(items) => items.iter().any(is_unusable),
        Value::Object(members) => members.iter().any(|(name, value)| {
            name.contains(char::is_control) || name.starts_with(TOML_DATE) || is_unusable(value)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl FurtherClaims {
    /// Joins claims of a command line.
    ///
    /// # Errors
    /// [`InvalidClaims`] for a repeated claim, or too many bytes in all.
    pub(crate) fn from_named(named: &[NamedClaim]) -> Result<Self, InvalidClaims> {
        let mut claims = Map::new();
        for NamedClaim { name, value } in named {
            if claims.insert(name.clone(), value.clone()).is_some() {
                return Err(InvalidClaims::Twice(name.clone()));
            }
        }
        claims.try_into()
    }

    /// Adds the claim `roles`, unless there are none.
    ///
    /// # Errors
    /// [`InvalidClaims`] if it stands there already, or for a bad role.
    pub(crate) fn with_roles(self, roles: Vec<String>) -> Result<Self, InvalidClaims> {
        if roles.is_empty() {
            return Ok(self);
        }
        let Self(mut claims) = self;
        if claims.insert(ROLES.to_owned(), roles.into()).is_some() {
            return Err(InvalidClaims::Twice(ROLES.to_owned()));
        }
        claims.try_into()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) const fn members(&self) -> &Map<String, Value> {
        &self.0
    }
}

/// One claim of a command line: `NAME=TEXT`, or `NAME:=JSON` for any other value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedClaim {
    name: String,
    value: Value,
}

impl FromStr for NamedClaim {
    type Err = InvalidClaims;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').ok_or(InvalidClaims::NotAPair)?;
        let (name, value) = match name.strip_suffix(':') {
            Some(name) => {
                let value = serde_json::from_str(value).map_err(|_| InvalidClaims::NotJson)?;
                (name, value)
            }
            None => (name, Value::String(value.to_owned())),
        };
        check(name, &value)?;
        Ok(Self {
            name: name.to_owned(),
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_of_the_command_line_is_text_or_json() {
        for (text, name, value) in [
            ("tenant=t1", "tenant", json!("t1")),
            ("roles:=[\"a\",\"b\"]", "roles", json!(["a", "b"])),
            ("level:=7", "level", json!(7)),
            ("level=7", "level", json!("7")),
            ("x=", "x", json!("")),
            ("https://x/y=a=b", "https://x/y", json!("a=b")),
        ] {
            let expected = NamedClaim {
                name: name.to_owned(),
                value,
            };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("tenant", InvalidClaims::NotAPair),
            ("=x", InvalidClaims::Name),
            ("a:=b", InvalidClaims::NotJson),
            ("a:=null", InvalidClaims::Null("a".to_owned())),
            ("sub=1", InvalidClaims::Reserved("sub")),
            ("userId=1", InvalidClaims::Reserved("userId")),
            ("a=\u{1b}[31m", InvalidClaims::Unusable("a".to_owned())),
            (r#"a:=["\u0000"]"#, InvalidClaims::Unusable("a".to_owned())),
        ] {
            assert_eq!(text.parse::<NamedClaim>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn claims_are_joined_once_each_and_bounded() {
        let named = |texts: &[&str]| -> Vec<NamedClaim> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let joined = FurtherClaims::from_named(&named(&["a=1", "b:=2"])).unwrap();
        assert_eq!(
            Value::from(joined.members().clone()),
            json!({"a": "1", "b": 2})
        );
        let twice = FurtherClaims::from_named(&named(&["a=1", "a=1"]));
        assert_eq!(twice, Err(InvalidClaims::Twice("a".to_owned())));
        let long = format!("a={}", "x".repeat(MAX_BYTES));
        let long = FurtherClaims::from_named(&named(&[&long]));
        assert_eq!(long, Err(InvalidClaims::TooLong));
        assert!(FurtherClaims::from_named(&[]).unwrap().is_empty());
    }

    #[test]
    fn roles_are_one_more_claim() {
        let roles = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let none = FurtherClaims::default();
        let admin = none.clone().with_roles(roles(&["admin", "ops"])).unwrap();
        let expected = json!({"roles": ["admin", "ops"]});
        assert_eq!(Value::from(admin.members().clone()), expected);
        assert_eq!(none.clone().with_roles(Vec::new()), Ok(none.clone()));
        let twice = admin.with_roles(roles(&["ops"]));
        assert_eq!(twice, Err(InvalidClaims::Twice("roles".to_owned())));
        let forged = none.with_roles(roles(&["a\nb"]));
        assert_eq!(forged, Err(InvalidClaims::Unusable("roles".to_owned())));
    }
}
