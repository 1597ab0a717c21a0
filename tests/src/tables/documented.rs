//! Command lines from the documents, which the tests run as a reader would.

use std::fs;

use crate::actors::programs::repository;

/// Returns the arguments of the one command in the `sh` block below a heading.
///
/// # Panics
/// When there is no such block, or it holds characters that a shell would not take literally.
pub fn command_under(document: &str, heading: &str) -> Vec<String> {
    let path = repository().join(document);
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let section = text
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("{document} has no heading `{heading}`"));
    let block = section.1.split("\n## ").next().and_then(|section| {
        let (_, block) = section.split_once("```sh\n")?;
        Some(block.split_once("```")?.0)
    });
    words(block.unwrap_or_else(|| panic!("no command under `{heading}` of {document}")))
}

/// Splits at blanks; single quotes keep a word together.
fn words(command: &str) -> Vec<String> {
    let joined = command.replace("\\\n", " ");
    let mut words = Vec::new();
    let mut rest = joined.trim();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').expect("a closing quote"),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        assert!(!word.contains(['$', '"', '`']), "{word} is not literal");
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}
