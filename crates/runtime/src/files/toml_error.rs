//! Errors of TOML texts without a quote of them: the parser's message shows the faulty line, which
//! may hold a secret.

/// One error, with its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {cause}")]
pub struct TomlError {
    line: usize,
    cause: String,
}

impl TomlError {
    /// Locates an error of the parser in `text`.
    #[must_use]
    pub fn new(error: &toml::de::Error, text: &str) -> Self {
        let before = error.span().and_then(|span| text.get(..span.start));
        Self {
            line: before.unwrap_or_default().matches('\n').count() + 1,
            cause: error.message().to_owned(),
        }
    }
}
