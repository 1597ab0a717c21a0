//! YAML and JSON as `kubectl` reads them, and written YAML that every reader reads alike.

mod read;
mod scalar;
mod write;

use postern_process::exit::ExitError;
use serde_json::Value;

pub(crate) use read::documents;
pub(crate) use write::stream;

/// A document of a file.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    /// File and line of the document, in the form that editors open.
    pub(crate) location: String,
    pub(crate) value: Value,
    /// Lines for the operator about changes of the document.
    pub(crate) warnings: Vec<String>,
}

/// Max number of characters of a line about an object, which may hold a text of the object's author.
const MAX_LINE: usize = 1000;

/// Returns the error of a document.
pub(crate) fn error(location: &str, problem: &str) -> ExitError {
    ExitError::Config(format!("{location}: {}", cut(problem)))
}

/// Returns the beginning of a line about an object.
pub(crate) fn cut(line: &str) -> String {
    line.chars().take(MAX_LINE).collect()
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
                    let error = error.to_string();
                    let (_, problem) = error.split_once(": ").unwrap();
                    assert!(problem.starts_with(expected), "{text}: {error}");
                }
            }
        }
    }
}
