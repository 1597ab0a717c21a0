//! Names without white space, in messages and tokens.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A name of 1 to `MAX` characters, none of them white space or a control character.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Word<const MAX: usize>(String);

impl<const MAX: usize> TryFrom<String> for Word<MAX> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
        if (1..=MAX).contains(&text.chars().count()) && text.chars().all(is_plain) {
            Ok(Self(text))
        } else {
            Err(format!(
                "expected 1 to {MAX} characters without white space"
            ))
        }
    }
}

impl<const MAX: usize> FromStr for Word<MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.to_owned().try_into()
    }
}

impl<const MAX: usize> fmt::Display for Word<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<const MAX: usize> Word<MAX> {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Allows lookups with an untrusted string.
impl<const MAX: usize> Borrow<str> for Word<MAX> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_word_is_short_and_without_white_space() {
        let longest = "x".repeat(128);
        for text in ["orders", "https://a.example/b", "größe", &longest] {
            assert_eq!(text.parse::<Word<128>>().unwrap().as_str(), text);
        }
        let too_long = "x".repeat(129);
        for text in ["", " ", "a b", "a\nb", "a\u{0}", "\u{a0}", &too_long] {
            assert!(text.parse::<Word<128>>().is_err(), "{text:?}");
        }
    }
}
