//! The path prefix of an application.

use std::{fmt, str::FromStr};

use super::PathError;
use crate::path::canonical::RequestPath;

/// The path prefix of one application: `/auth`, `/orders`, or empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContextPath(String);

impl ContextPath {
    /// Returns the prefix, empty or starting with a slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part of `path` after the prefix, as written; `None` for a path outside of it, and
    /// for one that is not canonical.
    pub fn strip<'p>(&self, path: &'p RequestPath<'_>) -> Option<&'p str> {
        self.strip_from(path.written()?)
    }

    /// Returns true for a path that lies below the prefix in every reading, whatever its names are.
    pub fn surrounds(&self, path: &RequestPath<'_>) -> bool {
        // `contained`: the text of a path that no program reads as a path outside of its first folder.
        match path.contained() {
            _ if self.0.is_empty() => true,
            Some(path) => self.strip_from(path).is_some(),
            None => false,
        }
    }

    /// Returns the part of a pattern after the prefix; `None` outside of it.
    pub fn strip_from<'p>(&self, path: &'p str) -> Option<&'p str> {
        match path.strip_prefix(self.0.as_str())? {
            "" => Some("/"),
            // `/orders2` belongs to another application than `/orders`.
            rest if rest.starts_with('/') => Some(rest),
            _ => None,
        }
    }
}

impl fmt::Display for ContextPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ContextPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        if !text.starts_with('/') {
            return Err(PathError::NotAbsolute);
        }
        // Escapes would make the prefix differ from the request line.
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"/-._~".contains(&b);
        if text.ends_with('/') || !text.bytes().all(is_plain) {
            return Err(PathError::BadContext);
        }
        match RequestPath::parse(text.as_bytes()) {
            Ok(path) if path.written().is_some() => Ok(Self(text.to_owned())),
            _ => Err(PathError::NotCanonical),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_context_path_ends_at_a_segment() {
        let context: ContextPath = "/orders".parse().unwrap();
        assert_eq!(context.to_string(), "/orders");
        for (path, expected) in [
            ("/orders", Some("/")),
            ("/orders/", Some("/")),
            ("/orders/a", Some("/a")),
            ("/ordersx/a", None),
            ("/a", None),
        ] {
            let request = RequestPath::parse(path.as_bytes()).unwrap();
            let found = context.strip(&request);
            assert_eq!(found, expected, "{path}");
        }
        for (path, is_inside) in [
            ("/orders//a", true),
            ("/orders/a;b", true),
            ("/orders/%2F", true),
            ("/orders/%61", true),
            ("/orders/a", true),
            ("/elsewhere//a", false),
            ("//orders/a", false),
            ("/%6frders//a", false),
            ("/orders;a/b", false),
            ("/orders%2Fa", false),
            // A way up for some programs.
            ("/orders//...", false),
            ("/orders/.%2E%20/a", false),
            ("/orders/%EF%BC%8E%EF%BC%8E//a", false),
            ("/orders/a%EF%BC%8F", false),
            ("/orders/%E9", false),
            ("/orders/a%5C", false),
        ] {
            let request = RequestPath::parse(path.as_bytes()).unwrap();
            assert_eq!(context.surrounds(&request), is_inside, "{path}");
            assert!(ContextPath::default().surrounds(&request), "{path}");
        }
        for text in ["orders", "/", "/a/", "/a b", "/..", "/a*", "/a%20b", "//a"] {
            assert!(text.parse::<ContextPath>().is_err(), "{text}");
        }
    }
}
