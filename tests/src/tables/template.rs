//! Placeholders in the data tables: `{{name}}` and `{{name:argument}}`, replaced by bytes.

use token_corpus::template;
pub use token_corpus::template::moment;

/// Replaces every placeholder: see [`template::fill`].
///
/// # Panics
/// When a placeholder is unknown or unfinished: a table with a typing error must not pass.
pub fn fill(text: &str, named: impl Fn(&str) -> Option<Vec<u8>>) -> Vec<u8> {
    let filled = template::fill(text, named);
    assert!(
        !template::is_unfilled(&filled),
        "unknown or unfinished placeholder in {text}"
    );
    filled
}

/// Replaces every placeholder of a text of which each character is one byte.
///
/// # Panics
/// When a placeholder is unknown, or a character is beyond `\u{ff}`.
pub fn fill_bytes(text: &str, named: impl Fn(&str) -> Option<Vec<u8>>) -> Vec<u8> {
    let filled = String::from_utf8(fill(text, named)).expect("a text");
    let byte = |letter| u8::try_from(letter).expect("one byte");
    filled.chars().map(byte).collect()
}
