//! How a setting names a claim.
//!
//! A name stands for the top-level claim of exactly that name, whatever characters it has – Auth0's
//! are URLs. A name that begins with `/` is a JSON Pointer (RFC 6901) to a nested one.

use serde_json::{Map, Value};

/// Which claim is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimName(Place);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    TopLevel(String),
    Nested {
        /// The name of the top-level claim.
        outer: String,
        /// A JSON Pointer into its value.
        pointer: String,
    },
}

/// Why a text names no claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClaimNameError {
    /// Nothing at all.
    #[error("names no claim")]
    Empty,
    /// `~` stands for nothing but `~0` and `~1`.
    #[error("not a JSON Pointer: write ~0 for '~' and ~1 for '/'")]
    Pointer,
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
        Ok(Self(Place::Nested {
            outer: unescaped(outer),
            pointer: pointer.to_owned(),
        }))
    }
}

fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

impl ClaimName {
    /// The top-level claim of this very name.
    pub(crate) fn top_level(name: &str) -> Self {
        Self(Place::TopLevel(name.to_owned()))
    }

    pub(crate) fn find<'a>(&self, members: &'a Map<String, Value>) -> Option<&'a Value> {
        match &self.0 {
            Place::TopLevel(name) => members.get(name),
            Place::Nested { outer, pointer } => members.get(outer)?.pointer(pointer),
        }
    }
}
