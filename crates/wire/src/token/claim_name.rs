//! The name of a claim in a setting.
//!
//! A name is the top-level claim of exactly this name, with any characters: Auth0's are URLs. A
//! name that begins with `/` is a JSON Pointer (RFC 6901) to a nested claim.

use serde_json::{Map, Value};

/// The name of a top-level or nested claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimName(ClaimPath);

#[derive(Debug, Clone, PartialEq, Eq)]
enum ClaimPath {
    TopLevel(String),
    Nested {
        /// The name of the top-level claim.
        outer: String,
        /// A JSON Pointer into its value.
        pointer: String,
    },
}

/// An invalid claim name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClaimNameError {
    /// An empty name.
    #[error("names no claim")]
    Empty,
    /// A `~` that is not part of `~0` or `~1`.
    #[error("not a JSON Pointer: write ~0 for '~' and ~1 for '/'")]
    Pointer,
}

/// Writes the name as a setting has it.
impl std::fmt::Display for ClaimName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            ClaimPath::TopLevel(name) => f.write_str(name),
            ClaimPath::Nested { outer, pointer } => {
                write!(
                    f,
                    "/{}{pointer}",
                    outer.replace('~', "~0").replace('/', "~1")
                )
            }
        }
    }
}

impl std::str::FromStr for ClaimName {
    type Err = ClaimNameError;

    fn from_str(text: &str) -> Result<Self, ClaimNameError> {
        let Some(path) = text.strip_prefix('/') else {
            return match text {
                "" => Err(ClaimNameError::Empty),
                name => Ok(Self::top_level(name)),
            };
        };
        let bad_escape = |part: &str| !part.is_empty() && !part.starts_with(['0', '1']);
        if text
            .split('~')
            .skip(1)
            .any(|part| part.is_empty() || bad_escape(part))
        {
            return Err(ClaimNameError::Pointer);
        }
        let (outer, pointer) = match path.find('/') {
            Some(end) => path.split_at(end),
            None => (path, ""),
        };
        Ok(Self(ClaimPath::Nested {
            outer: unescaped(outer),
            pointer: pointer.to_owned(),
        }))
    }
}

fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

impl ClaimName {
    /// Names a top-level claim, without parsing.
    pub(crate) fn top_level(name: &str) -> Self {
        Self(ClaimPath::TopLevel(name.to_owned()))
    }

    /// Returns the claim among the members of a payload.
    pub fn find<'a>(&self, members: &'a Map<String, Value>) -> Option<&'a Value> {
        match &self.0 {
            ClaimPath::TopLevel(name) => members.get(name),
            ClaimPath::Nested { outer, pointer } => members.get(outer)?.pointer(pointer),
        }
    }
}
