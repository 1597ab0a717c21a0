//! YAML and JSON as `kubectl` reads them, and YAML that every reader takes for the same.

mod read;
mod scalar;
mod write;

use std::fmt::{self, Display, Formatter};

use serde_json::Value;

use crate::object::Rejected;

pub(crate) use read::documents;
pub(crate) use write::stream;

/// One document of a file.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) location: Location,
    pub(crate) value: Value,
}

/// A place in a file, as editors find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) file: String,
    /// From 1.
    pub(crate) line: usize,
}

/// An error in a document, with its location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {problem}")]
pub(crate) struct DocumentError {
    pub(crate) location: Location,
    pub(crate) problem: String,
}

impl Document {
    /// Gives an error the location.
    ///
    /// # Errors
    /// That one.
    pub(crate) fn located<T>(&self, result: Result<T, Rejected>) -> Result<T, DocumentError> {
        result.map_err(|rejected| DocumentError {
            location: self.location.clone(),
            problem: rejected.to_string(),
        })
    }
}

impl Display for Location {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    /// tests/manifests/test_yaml.py holds `kubectl` and a reader of YAML 1.1 to the same rows.
    #[test]
    fn documents_are_read_as_kubectl_reads_them() {
        let rows = include_str!("../../../tests/data/yaml_1_1.json");
        let rows: Vec<Value> = serde_json::from_str(rows).unwrap();
        for row in rows {
            let text = row["yaml"].as_str().unwrap();
            match documents("-", text) {
                Ok(read) => {
                    assert_eq!(read[0].value["x"], row["x"], "{text}");
                    let written = stream([&read[0].value]);
                    assert_eq!(documents("-", &written).unwrap()[0].value, read[0].value);
                }
                Err(error) => {
                    let expected = row["error"].as_str().unwrap_or("no error");
                    assert!(error.problem.starts_with(expected), "{text}: {error}");
                }
            }
        }
    }
}
