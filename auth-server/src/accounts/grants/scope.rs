//! Scopes (RFC 6749 §3.3).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Max length of a scope: enough for an application of many services, and a token stays small.
const MAX_SCOPE_BYTES: usize = 1024;

/// A set of scope values, written as one text with spaces between them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Scope(BTreeSet<String>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a scope is a list of values with spaces between them, of visible ASCII without quotes and backslashes, \
     and has at most {MAX_SCOPE_BYTES} characters"
)]
pub(crate) struct InvalidScope;

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let values: BTreeSet<_> = text.split(' ').filter(|value| !value.is_empty()).collect();
        let is_valid = |value: &&str| value.bytes().all(is_scope_byte);
        if values.is_empty() || text.len() > MAX_SCOPE_BYTES || !values.iter().all(is_valid) {
            return Err(InvalidScope);
        }
        Ok(Self(values.into_iter().map(str::to_owned).collect()))
    }
}

/// The characters of RFC 6749 §3.3: `%x21 / %x23-5B / %x5D-7E`.
fn is_scope_byte(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && byte != b'"' && byte != b'\\'
}

impl TryFrom<String> for Scope {
    type Error = InvalidScope;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<_> = self.0.iter().map(String::as_str).collect();
        f.write_str(&values.join(" "))
    }
}

impl Scope {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Returns the text of a token or a response; `None` without a value.
    pub(crate) fn text(&self) -> Option<String> {
        if self.is_empty() {
            None
        } else {
            Some(self.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn scope(text: &str) -> Scope {
        text.parse().unwrap()
    }

    #[test]
    fn a_scope_is_a_set_in_one_order() {
        for (text, expected) in [
            ("a", "a"),
            ("b a", "a b"),
            ("a  b a", "a b"),
            ("orders:read https://x/y", "https://x/y orders:read"),
        ] {
            assert_eq!(scope(text).to_string(), expected);
        }
        assert_eq!(Scope::default().text(), None);
        assert_eq!(scope("a").text(), Some("a".to_owned()));
    }

    #[test]
    fn what_is_no_scope_is_rejected() {
        let long = "x".repeat(1025);
        for text in ["", " ", "a\tb", "a\"b", "a\\b", "ö", "a\nb", &long] {
            assert_eq!(text.parse::<Scope>(), Err(InvalidScope), "{text:?}");
        }
    }

    #[test]
    fn a_part_is_within_the_whole() {
        let whole = scope("a b c");
        for (part, expected) in [("a", true), ("c a", true), ("a d", false), ("A", false)] {
            assert_eq!(scope(part).is_within(&whole), expected, "{part}");
        }
        assert!(Scope::default().is_within(&whole));
    }
}
