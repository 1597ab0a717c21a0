//! What is wrong with a TOML text, without quoting it: the parser's own words show the faulty line, and
//! a secret may stand there.

/// One fault, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {cause}")]
pub struct TomlFault {
    line: usize,
    cause: String,
}

impl TomlFault {
    /// What the parser found in `text`.
    #[must_use]
    pub fn new(error: &toml::de::Error, text: &str) -> Self {
        let before = error.span().and_then(|span| text.get(..span.start));
        Self {
            line: before.unwrap_or_default().matches('\n').count() + 1,
            cause: error.message().to_owned(),
        }
    }
}
