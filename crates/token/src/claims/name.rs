//! The name of a claim in a setting.
//!
//! A name is the top-level claim of exactly this name, with any characters: Auth0's names are URLs. A name
//! that begins with `/` is a JSON Pointer (RFC 6901) to a nested claim.

use crate::strict_json::{Map, Value, is_whole};

/// The name of a top-level or nested claim, as a setting has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimName(String);

impl std::fmt::Display for ClaimName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for ClaimName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let mut escapes = text.split('~').skip(1);
        if text.is_empty() || !is_whole(text) {
            Err("names no claim")
        } else if text.starts_with('/') && !escapes.all(|rest| rest.starts_with(['0', '1'])) {
            Err("not a JSON Pointer: write ~0 for '~' and ~1 for '/'")
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}

impl ClaimName {
    /// Returns the name of a top-level claim, without parsing.
    pub fn top_level(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Returns the claim among the members of a payload.
    pub fn find<'a>(&self, members: &'a Map) -> Option<&'a Value> {
        let Some(path) = self.0.strip_prefix('/') else {
            return members.get(&self.0);
        };
        let names = path.split('/');
        // `~1` before `~0` (RFC 6901 §4): `~01` stands for `~1`.
        let mut names = names.map(|name| name.replace("~1", "/").replace("~0", "~"));
        let outer = members.get(&names.next()?)?;
        names.try_fold(outer, |value, name| match value {
            Value::Object(members) => members.get(&name),
            Value::Array(items) => items.get(position(&name)?),
            _ => None,
        })
    }
}

/// Parses the position in a list, which has one spelling (RFC 6901 §4).
fn position(name: &str) -> Option<usize> {
    let is_plain = name == "0" || name.starts_with(|c: char| matches!(c, '1'..='9'));
    name.parse().ok().filter(|_| is_plain)
}
