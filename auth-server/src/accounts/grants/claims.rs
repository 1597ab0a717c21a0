//! Further claims of a token, beside those that this program makes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Claims that this program issues, or whose meaning a standard fixes: a value of an operator's
/// choice would deceive the verifier.
const RESERVED: &str = "iss sub aud exp nbf iat jti scope scp client_id azp act may_act cnf sid nonce acr \
     amr auth_time at_hash c_hash events username nickName userId extraInfo";

/// The claim of a user's roles (RFC 9068 §2.2.3.1).
const ROLES: &str = "roles";
const MAX_NAME_CHARACTERS: usize = 128;
/// Max length of the claims: with the largest scope and audience a token still fits into a header field.
const MAX_BYTES: usize = 2048;

/// Claims by name, as JSON values without control characters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(crate) struct FurtherClaims(Map<String, Value>);

impl TryFrom<Map<String, Value>> for FurtherClaims {
    type Error = String;

    fn try_from(claims: Map<String, Value>) -> Result<Self, String> {
        for (name, value) in &claims {
            check(name, value)?;
        }
        match serde_json::to_vec(&claims) {
            Ok(json) if json.len() <= MAX_BYTES => Ok(Self(claims)),
            _ => Err(format!(
                "the claims have more than {MAX_BYTES} bytes of JSON"
            )),
        }
    }
}

fn check(name: &str, value: &Value) -> Result<(), String> {
    let fits = (1..=MAX_NAME_CHARACTERS).contains(&name.chars().count());
    if !fits || name.contains(char::is_control) {
        return Err(format!(
            "a claim's name has 1 to {MAX_NAME_CHARACTERS} characters, none of them a control character"
        ));
    }
    // An operator's value of such a claim would deceive the verifier of the token.
    if RESERVED.split(' ').any(|reserved| reserved == name) {
        return Err(format!("the claim {name} is this server's own"));
    }
    if value.is_null() {
        return Err(format!("the claim {name} is null, which is no value"));
    }
    if is_unusable(value) {
        return Err(format!(
            "the claim {name} holds a control character, or a date, which JSON does not have"
        ));
    }
    Ok(())
}

fn twice(name: &str) -> String {
    format!("the claim {name} stands there twice")
}

/// The member by which the TOML library passes a date on.
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
    /// For a repeated claim, or too many bytes in all.
    pub(crate) fn from_named(named: &[(String, Value)]) -> Result<Self, String> {
        let mut claims = Map::new();
        for (name, value) in named {
            if claims.insert(name.clone(), value.clone()).is_some() {
                return Err(twice(name));
            }
        }
        claims.try_into()
    }

    /// Adds the claim `roles`, unless the list is empty.
    ///
    /// # Errors
    /// If the claims have `roles` already, or for a bad role.
    pub(crate) fn with_roles(self, roles: Vec<String>) -> Result<Self, String> {
        if roles.is_empty() {
            return Ok(self);
        }
        let Self(mut claims) = self;
        if claims.insert(ROLES.to_owned(), roles.into()).is_some() {
            return Err(twice(ROLES));
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

/// Reads one claim of a command line: `NAME=TEXT`, or `NAME:=JSON` for any other value.
pub(crate) fn named_claim(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("expected NAME=TEXT or NAME:=JSON")?;
    let (name, value) = match name.strip_suffix(':') {
        Some(name) => (
            name,
            serde_json::from_str(value).map_err(|_| "after := has to stand JSON")?,
        ),
        None => (name, Value::String(value.to_owned())),
    };
    check(name, &value)?;
    Ok((name.to_owned(), value))
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
            assert_eq!(named_claim(text), Ok((name.to_owned(), value)), "{text}");
        }
        for (text, expected) in [
            ("tenant", "expected NAME=TEXT"),
            ("=x", "a claim's name has 1 to 128"),
            ("a:=b", "has to stand JSON"),
            ("a:=null", "the claim a is null"),
            ("sub=1", "the claim sub is this server's own"),
            ("userId=1", "the claim userId is this server's own"),
            ("a=\u{1b}[31m", "the claim a holds a control character"),
            (r#"a:=["\u0000"]"#, "the claim a holds a control character"),
        ] {
            let error = named_claim(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn claims_are_joined_once_each_and_bounded() {
        let named = |texts: &[&str]| -> Vec<(String, Value)> {
            texts
                .iter()
                .map(|text| named_claim(text).unwrap())
                .collect()
        };
        let joined = FurtherClaims::from_named(&named(&["a=1", "b:=2"])).unwrap();
        assert_eq!(
            Value::from(joined.members().clone()),
            json!({"a": "1", "b": 2})
        );
        let twice = FurtherClaims::from_named(&named(&["a=1", "a=1"]));
        assert_eq!(twice, Err("the claim a stands there twice".to_owned()));
        let long = format!("a={}", "x".repeat(MAX_BYTES));
        let long = FurtherClaims::from_named(&named(&[&long]));
        assert!(long.is_err());
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
        assert!(twice.is_err());
        let forged = none.with_roles(roles(&["a\nb"]));
        assert!(forged.is_err());
    }
}
