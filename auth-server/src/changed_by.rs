//! The people behind changes of keys and applications: a command records its actor with what it changed,
//! and every server logs that.

use std::fmt;
use std::str::FromStr;

use runtime::logs::sanitize::LogText;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use wire::explain::report::moment;

/// Max characters of a reason, as of any text in a log line.
const MAX_REASON: usize = 128;
/// Max characters of the name of an account or a host.
const MAX_NAME: usize = 64;
/// Max bytes of a note as JSON, twice what this version writes in the longest characters.
const MAX_NOTE_BYTES: usize = 2 * 1024;

/// The last change of a document of the store by a command. It proves nothing: its writer can write
/// anything else into the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangedBy {
    /// The key, token, user or application, where the document has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<String>,
    /// The name of the audit event, where the document has several kinds of change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    /// `user@host`.
    pub(crate) by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Seconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<i64>,
    /// Members of a newer version.
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

/// The text of `--reason`: 1 to 128 characters, none of them a control character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a reason has 1 to 128 characters, and no line breaks or other control characters")]
pub(crate) struct InvalidReason;

impl FromStr for Reason {
    type Err = InvalidReason;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let fits = (1..=MAX_REASON).contains(&text.chars().count());
        if fits && !text.contains(char::is_control) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidReason)
        }
    }
}

impl ChangedBy {
    pub(crate) fn new(actor: String, reason: Option<&Reason>, now: i64) -> Self {
        Self {
            of: None,
            event: None,
            by: actor,
            reason: reason.map(|Reason(text)| text.clone()),
            at: Some(now),
            unknown: Map::new(),
        }
    }

    /// Names what was changed.
    pub(crate) fn of(&self, id: impl ToString) -> Self {
        Self {
            of: Some(id.to_string()),
            ..self.clone()
        }
    }

    /// Says what the change was, by the name of its audit event.
    pub(crate) fn with_event(&self, name: &str) -> Self {
        Self {
            event: Some(name.to_owned()),
            ..self.clone()
        }
    }

    /// Returns the name of the audit event, where that is recorded.
    pub(crate) fn event(&self) -> Option<&str> {
        self.event.as_deref()
    }

    /// Returns what was changed, where that is recorded.
    pub(crate) fn named(&self) -> Option<String> {
        self.of.clone()
    }

    /// Returns true if this change was one of `id`.
    pub(crate) fn is_of(&self, id: &str) -> bool {
        self.of.as_deref() == Some(id)
    }

    /// Returns the JSON that lists print.
    pub(crate) fn to_json(&self) -> Value {
        let members = [
            ("of", self.of.clone()),
            ("by", Some(self.by.clone())),
            ("reason", self.reason.clone()),
            ("at", self.at.map(moment)),
        ];
        let members = members
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), text?.into())));
        Value::Object(members.collect())
    }

    fn is_bounded(&self) -> bool {
        serde_json::to_string(self).is_ok_and(|json| json.len() <= MAX_NOTE_BYTES)
    }
}

/// `ada@host 2026-11-22T14:00:00Z (laptop stolen)`, on one line whatever it holds.
impl fmt::Display for ChangedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", LogText(&self.by))?;
        if let Some(at) = self.at {
            write!(f, " {}", moment(at))?;
        }
        if let Some(reason) = &self.reason {
            write!(f, " ({})", LogText(reason))?;
        }
        Ok(())
    }
}

/// Returns `user@host`. Of a user behind `sudo` the own name counts; without a usable name in the
/// environment, as in most containers, the uid does.
pub(crate) fn actor(
    variable: impl Fn(&str) -> Option<String>,
    uid: u32,
    host: Option<&str>,
) -> String {
    let is_plain = |name: &str| {
        let plain = |c: char| !c.is_whitespace() && !c.is_control();
        (1..=MAX_NAME).contains(&name.chars().count()) && name.chars().all(plain)
    };
    let names = ["SUDO_USER", "LOGNAME", "USER"];
    let user = names.into_iter().filter_map(variable);
    let user = user.into_iter().find(|name| is_plain(name));
    let user = user.unwrap_or_else(|| format!("uid-{uid}"));
    let host = host.filter(|name| is_plain(name)).unwrap_or("unknown");
    format!("{user}@{host}")
}

/// Reads a note, unless this version cannot read it or no command writes such a long one.
pub(crate) fn readable<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ChangedBy>, D::Error> {
    let note = serde_json::from_value(Value::deserialize(deserializer)?).ok();
    Ok(note.filter(ChangedBy::is_bounded))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn note(by: &str, at: i64) -> ChangedBy {
        ChangedBy::new(by.to_owned(), None, at)
    }

    #[test]
    fn an_actor_is_a_user_at_a_host_whatever_the_environment_holds() {
        let long = "x".repeat(65);
        for (variables, host, expected) in [
            (&[("USER", "ada")][..], Some("desk"), "ada@desk"),
            (
                &[("USER", "b"), ("LOGNAME", "ada")],
                Some("desk"),
                "ada@desk",
            ),
            (
                &[("USER", "root"), ("SUDO_USER", "ada")],
                Some("desk"),
                "ada@desk",
            ),
            (
                &[("LOGNAME", ""), ("USER", "ada")],
                Some("desk"),
                "ada@desk",
            ),
            (&[("USER", "a\nb")], Some("desk"), "uid-7@desk"),
            (&[("USER", "a b")], Some("desk"), "uid-7@desk"),
            (&[("USER", long.as_str())], Some("desk"), "uid-7@desk"),
            (&[], None, "uid-7@unknown"),
            (&[], Some("a\u{1b}b"), "uid-7@unknown"),
        ] {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(actor(variable, 7, host), expected);
        }
    }

    #[test]
    fn a_reason_is_one_short_line() {
        let longest = "ß".repeat(128);
        for text in ["laptop stolen", " OPS-7: \"rotated\" ", &longest] {
            assert_eq!(text.parse(), Ok(Reason(text.trim().to_owned())));
        }
        let too_long = "x".repeat(129);
        for text in ["", " ", "a\nb", "a\u{1b}[31mb", "a\u{85}b", &too_long] {
            assert_eq!(text.parse::<Reason>(), Err(InvalidReason), "{text:?}");
        }
    }

    #[test]
    fn a_note_stays_on_one_line() {
        let mut note = note("ada@desk", 0);
        assert_eq!(note.to_string(), "ada@desk 1970-01-01T00:00:00Z");
        note.reason = Some("a\nb\u{202e}".to_owned());
        let expected = "ada@desk 1970-01-01T00:00:00Z (a\\nb\\u{202e})";
        assert_eq!(note.to_string(), expected);
        assert_eq!(note.to_json()["at"], "1970-01-01T00:00:00Z");
    }
}
