//! Errors of TOML texts, without a quote of the text: the parser's message shows the faulty line, which
//! may hold a secret.

/// The message about a key that stands twice; its span is the key alone.
const DUPLICATE: &str = "duplicate key";

/// An error of the parser, with the line of the text.
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
        let span = error.span().unwrap_or_default();
        let before = text.get(..span.start).unwrap_or_default();
        Self {
            line: before.matches('\n').count() + 1,
            cause: match (error.message(), text.get(span)) {
                (DUPLICATE, Some(key)) => format!("{DUPLICATE} `{key}`"),
                (message, _) => in_plain_words(message) + other_format(text),
            },
        }
    }

    /// Names the table and the member in front of the cause, which may begin with a quoted value.
    #[must_use]
    pub fn within(mut self, position: &str) -> Self {
        let colon = if self.cause.starts_with('\'') {
            ""
        } else {
            ":"
        };
        self.cause = format!("{position}{colon} {}", self.cause);
        self
    }
}

/// Returns the hint for a text that is JSON or YAML, by its first line of data.
fn other_format(text: &str) -> &'static str {
    let first = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'))
        .unwrap_or_default();
    let name = first.split('=').next().unwrap_or_default();
    if first.starts_with(['{', '-']) || name.contains(':') {
        "; the file is JSON or YAML, and TOML is expected: name = \"value\""
    } else {
        ""
    }
}

/// Words of the standard library and of serde, each with the words for an operator.
const WORDS: [(&str, &str); 11] = [
    ("invalid digit found in string", "expected a whole number"),
    (
        "cannot parse integer from empty string",
        "expected a whole number",
    ),
    ("invalid type: string", "found the text"),
    ("invalid type: map", "found a table"),
    ("invalid type: sequence", "found a list"),
    ("invalid type:", "found"),
    (
        "expected a sequence",
        "expected a list: [\"a\", \"b\"], or [[…]] above each table",
    ),
    ("expected a map", "expected a table: {name = \"value\"}"),
    ("unknown field", "unknown key"),
    ("missing field", "a key is missing:"),
    ("unknown variant", "unknown value"),
];

/// Rewords a message about a setting.
#[must_use]
pub fn in_plain_words(message: &str) -> String {
    let mut text = message.to_owned();
    for (theirs, ours) in WORDS {
        text = text.replace(theirs, ours);
    }
    text
}
