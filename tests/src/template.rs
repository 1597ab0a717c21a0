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
