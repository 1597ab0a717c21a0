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
        if text.is_empty() || !is_whole(text) {
            return Err("names no claim");
        }
        let mut escapes = text.split('~').skip(1);
        if text.starts_with('/') && !escapes.all(|rest| rest.starts_with(['0', '1'])) {
            return Err("not a JSON Pointer: write ~0 for '~' and ~1 for '/'");
        }
        Ok(Self(text.to_owned()))
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
        let mut names = path.split('/');
        let mut value = members.get(&unescape(names.next()?))?;
        for name in names {
            value = match value {
                Value::Object(members) => members.get(&unescape(name))?,
                Value::Array(items) => items.get(position(name)?)?,
                _ => return None,
            };
        }
        Some(value)
    }
}

fn unescape(name: &str) -> String {
    // `~1` before `~0` (RFC 6901 §4): `~01` stands for `~1`.
    name.replace("~1", "/").replace("~0", "~")
}

/// Parses the position in a list, which has one spelling (RFC 6901 §4).
fn position(name: &str) -> Option<usize> {
    match name.as_bytes() {
        [b'0'] | [b'1'..=b'9', ..] => name.parse().ok(),
        _ => None,
    }
}
