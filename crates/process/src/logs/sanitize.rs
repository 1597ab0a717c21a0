//! Text of clients, made fit for one line of a log.

use std::fmt;

/// A text that is printed up to 128 characters, with escapes for control characters, line and
/// paragraph separators and direction marks.
pub struct LogText<'a>(pub &'a str);

const MAX_CHARACTERS: usize = 128;

impl fmt::Display for LogText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(MAX_CHARACTERS) {
            write!(f, "{}", character.escape_debug())?;
        }
        if characters.next().is_some() {
            f.write_str("…")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_forge_a_line_is_escaped_and_what_is_long_cut() {
        for (text, expected) in [
            ("orders", "orders"),
            ("größe 汉字", "größe 汉字"),
            ("a\nERROR b", "a\\nERROR b"),
            ("a\r\t\0\u{1b}[31m", "a\\r\\t\\0\\u{1b}[31m"),
            ("\u{202e}abc\u{2028}", "\\u{202e}abc\\u{2028}"),
            ("a\"b\\", "a\\\"b\\\\"),
        ] {
            assert_eq!(LogText(text).to_string(), expected);
        }
        assert_eq!(LogText(&"x".repeat(128)).to_string(), "x".repeat(128));
        assert_eq!(LogText(&"x".repeat(129)).to_string(), "x".repeat(128) + "…");
    }
}
