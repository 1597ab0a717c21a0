//! The name of a claim in a setting.
//!
//! A name is the top-level claim of exactly this name, with any characters: Auth0's are URLs. A
//! name that begins with `/` is a JSON Pointer (RFC 6901) to a nested claim.

use serde_json::{Map, Value};

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
        if text.is_empty() {
            Err("names no claim")
        } else if text.starts_with('/') && !escapes.all(|rest| rest.starts_with(['0', '1'])) {
            Err("not a JSON Pointer: write ~0 for '~' and ~1 for '/'")
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}

impl ClaimName {
    /// Names a top-level claim, without parsing.
    pub(crate) fn top_level(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Returns the claim among the members of a payload.
    pub fn find<'a>(&self, members: &'a Map<String, Value>) -> Option<&'a Value> {
        let Some(path) = self.0.strip_prefix('/') else {
            return members.get(&self.0);
        };
        let (outer, pointer) = path.split_at(path.find('/').unwrap_or(path.len()));
        let outer = outer.replace("~1", "/").replace("~0", "~");
        members.get(&outer)?.pointer(pointer)
    }
}
