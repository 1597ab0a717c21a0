//! The part of a document that a measurement writes, between two marks.

use std::path::Path;

/// Replaces the text between the marks of `part` in a Markdown file.
///
/// # Panics
/// When the file cannot be read or written, or has no such part.
pub fn write_part(file: &Path, part: &str, text: &str) {
    let path = file.display();
    let document = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{path}: {error}"));
    let document = with_part(&document, part, text)
        .unwrap_or_else(|| panic!("{path} has no part between the marks of `{part}`"));
    std::fs::write(file, document).unwrap_or_else(|error| panic!("{path}: {error}"));
}

fn with_part(document: &str, part: &str, text: &str) -> Option<String> {
    let (begin, end) = (
        format!("<!-- {part}: begin -->\n"),
        format!("<!-- {part}: end -->"),
    );
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{}\n{end}{after}", text.trim_end()))
}
