//! The mapping of another issuer's claims to the fields of the user (contract §2.5).

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::claims::name::ClaimName;
use crate::claims::user_details::CurrentUserDetails;
use crate::invalid::InvalidToken;
use crate::strict_json::{Map, Value};

/// The fields that identify a user. Unless mapped, both come from `sub`, the only claim about the user that
/// every issuer sends (RFC 9068 §2.2).
const REQUIRED: [&str; 2] = ["id", "account"];
const SUBJECT: &str = "sub";

/// The name of a field of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserField(&'static str);

impl FromStr for UserField {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fields = CurrentUserDetails::FIELDS;
        match fields.iter().find(|name| **name == text) {
            Some(name) => Ok(Self(name)),
            None => Err(format!(
                "the user has no field of this name; --claim-header X-Roles=roles passes any claim in a header of its own; \
                 the fields are {}",
                fields.join(", ")
            )),
        }
    }
}

impl UserField {
    /// Returns true for a field that identifies the user.
    #[must_use]
    pub fn is_required(self) -> bool {
        REQUIRED.contains(&self.0)
    }
}

/// The fields of the user and the claims they come from; of several claims the first in the token counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimMapping {
    fields: BTreeMap<UserField, Vec<ClaimName>>,
    /// The claims that may hold the audience; the first in the token that is not empty counts.
    audience: Vec<ClaimName>,
}

impl ClaimMapping {
    /// Creates the mapping. `id` and `account` come from `sub` unless they are among the fields.
    #[must_use]
    pub fn new(mut fields: BTreeMap<UserField, Vec<ClaimName>>) -> Self {
        for field in REQUIRED.map(UserField) {
            fields
                .entry(field)
                .or_insert_with(|| vec![ClaimName::top_level(SUBJECT)]);
        }
        Self {
            fields,
            audience: vec![ClaimName::top_level("aud")],
        }
    }

    /// Parses `FIELD=CLAIM` entries; of several claims of a field the first in the token counts. `id` and
    /// `account` come from `sub` unless an entry maps them.
    ///
    /// # Errors
    /// The first unusable entry, and the reason.
    pub fn parse<'a>(
        entries: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, (&'a str, String)> {
        let mut fields: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in entries {
            let (field, claim) = parse_entry(entry).map_err(|why| (entry, why))?;
            fields.entry(field).or_default().push(claim);
        }
        Ok(Self::new(fields))
    }

    /// Takes the audience from these claims in place of `aud`, unless the list is empty.
    #[must_use]
    pub fn with_audience(self, audience: Vec<ClaimName>) -> Self {
        if audience.is_empty() {
            return self;
        }
        Self { audience, ..self }
    }

    /// Returns the claims that may have the audience.
    pub(crate) fn audience_claims(&self) -> &[ClaimName] {
        &self.audience
    }

    /// Returns the audience: an empty claim counts as an absent one.
    pub(crate) fn audience<'m>(&self, members: &'m Map) -> Option<&'m Value> {
        self.audience
            .iter()
            .filter_map(|claim| claim.find(members))
            .find(|value| !value.says_nothing())
    }

    /// Returns the fields that identify a user, with their claims.
    pub(crate) fn required(&self) -> impl Iterator<Item = (&'static str, &[ClaimName])> {
        let claims = |field| self.fields.get(&UserField(field));
        REQUIRED
            .into_iter()
            .filter_map(move |field| Some((field, claims(field)?.as_slice())))
    }

    /// Reads the user from a payload. Text stays as it is; numbers, booleans, arrays and objects
    /// become their JSON text, because any other form could be read in two ways.
    ///
    /// # Errors
    /// [`InvalidToken::ClaimMissing`] without `id` or `account`; [`InvalidToken::ClaimInvalid`]
    /// if one of them is empty, or neither text nor an integer.
    pub(crate) fn user(&self, members: &Map) -> Result<CurrentUserDetails, InvalidToken> {
        let mut user = CurrentUserDetails::default();
        for (field, claims) in &self.fields {
            let value = first(claims, members);
            // A token without `id` or `account` names no user; any other field may be missing.
            let text = if field.is_required() {
                Some(required_text(value)?)
            } else {
                value.and_then(optional_text)
            };
            // The field always exists: `UserField` has the names of the user's fields.
            if let Some(slot) = user.field_mut(field.0) {
                *slot = text;
            }
        }
        Ok(user)
    }
}

/// Returns the first of these claims that the token has.
pub(crate) fn first<'m>(claims: &[ClaimName], members: &'m Map) -> Option<&'m Value> {
    counting(claims, members)?.find(members)
}

/// Returns the name of the first of these claims that the token has.
pub(crate) fn counting<'c>(claims: &'c [ClaimName], members: &Map) -> Option<&'c ClaimName> {
    claims.iter().find(|claim| match claim.find(members) {
        None | Some(Value::Null) => false,
        Some(_) => true,
    })
}

fn parse_entry(entry: &str) -> Result<(UserField, ClaimName), String> {
    let expected = "expected FIELD=CLAIM, such as account=preferred_username";
    let (field, claim) = entry.split_once('=').ok_or(expected)?;
    Ok((field.trim().parse()?, claim.trim().parse()?))
}

/// Returns a claim that identifies a user. The service could take an empty id for another user, and
/// a number with a fraction has more than one spelling.
fn required_text(value: Option<&Value>) -> Result<String, InvalidToken> {
    match value {
        None | Some(Value::Null) => Err(InvalidToken::ClaimMissing),
        Some(value) => match value.name() {
            Some(name) => Ok(name.to_owned()),
            None => Err(InvalidToken::ClaimInvalid),
        },
    }
}

fn optional_text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::{Value, json};

    use super::*;

    fn user(
        entries: &[&str],
        payload: &Value,
    ) -> Result<Vec<(&'static str, String)>, InvalidToken> {
        let mapping = ClaimMapping::parse(entries.iter().copied()).unwrap();
        let user = mapping.user(&serde_json::from_value(payload.clone()).unwrap())?;
        Ok(user
            .present()
            .map(|(name, value)| (name, value.to_owned()))
            .collect())
    }

    #[test]
    fn the_subject_is_id_and_account_unless_mapped() {
        let payload = json!({"sub": "s", "preferred_username": "ada", "uid": 7});
        for (entries, id, account) in [
            (&[][..], "s", "s"),
            (&["account=preferred_username"], "s", "ada"),
            (&["id=uid"], "7", "s"),
            (&[" id = uid "], "7", "s"),
            (
                &["account=upn", "id=uid", "account=preferred_username"],
                "7",
                "ada",
            ),
        ] {
            let expected = [("id", id.to_owned()), ("account", account.to_owned())];
            assert_eq!(user(entries, &payload).unwrap(), expected, "{entries:?}");
        }
    }

    #[test]
    fn a_name_is_taken_whole_and_a_leading_slash_leads_inside() {
        let payload = json!({
            "sub": "s",
            "https://example.com/tenant": "t",
            "a.b": "dotted",
            "a": {"b": "nested"},
            "realm_access": {"roles": ["x", "y,z"]},
            "/odd~": "odd",
        });
        for (claim, value) in [
            ("https://example.com/tenant", Some("t")),
            ("a.b", Some("dotted")),
            ("/a/b", Some("nested")),
            ("/realm_access/roles", Some(r#"["x","y,z"]"#)),
            ("/realm_access/roles/1", Some("y,z")),
            ("/a.b", Some("dotted")),
            ("/~1odd~0", Some("odd")),
            ("/https:~1~1example.com~1tenant", Some("t")),
            ("/a/b/c", None),
            ("/sub/0", None),
            ("none", None),
        ] {
            let entry = format!("other={claim}");
            let user = user(&[&entry], &payload).unwrap();
            let other = user.iter().find(|(name, _)| *name == "other");
            assert_eq!(other.map(|(_, text)| text.as_str()), value, "{claim}");
        }
    }

    #[test]
    fn other_types_become_their_json_text() {
        for (value, text) in [
            (json!(true), Some("true")),
            (json!(-3), Some("-3")),
            (json!(1.5), Some("1.5")),
            (json!([]), Some("[]")),
            (json!({"a": null}), Some(r#"{"a":null}"#)),
            (json!(""), Some("")),
            (json!(null), None),
        ] {
            let user = user(&["email=e"], &json!({"sub": "s", "e": value})).unwrap();
            let email = user.iter().find(|(name, _)| *name == "email");
            assert_eq!(email.map(|(_, text)| text.as_str()), text);
        }
    }

    #[test]
    fn a_user_without_id_or_account_is_rejected() {
        use InvalidToken::{ClaimInvalid, ClaimMissing};
        for (value, rejection) in [
            (json!(null), ClaimMissing),
            (json!(""), ClaimInvalid),
            (json!(1.0), ClaimInvalid),
            (json!(1e30), ClaimInvalid),
            (json!(false), ClaimInvalid),
            (json!(["s"]), ClaimInvalid),
            (json!({}), ClaimInvalid),
        ] {
            for (entries, payload) in [
                (&[][..], json!({"sub": value})),
                (&["id=x"], json!({"sub": "s", "x": value})),
                (&["account=x"], json!({"sub": "s", "x": value})),
            ] {
                assert_eq!(user(entries, &payload), Err(rejection), "{payload}");
            }
        }
        assert_eq!(user(&[], &json!({})), Err(ClaimMissing));
    }
}
