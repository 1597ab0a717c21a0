//! YAML as people write it: read with its places, and edited as text, so that comments, the order of
//! members and every way of writing a value stay.

mod edit;
mod emit;
mod node;
mod parse;

pub(crate) use edit::edited;
pub(crate) use parse::{Document, documents};

/// An error of the text, with its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub(crate) struct YamlError {
    pub(crate) line: usize,
    pub(crate) problem: String,
}
