//! The flags that documents name, compared with the generated tables of all commands.

use std::collections::BTreeSet;
use std::fs;

use tests::actors::programs::repository;

use super::files_below;

/// Flags of other programs.
const FOREIGN: [&str; 8] = [
    "--admission-control-config-file",
    "--allowed-group",
    "--build",
    "--oidc-groups-claim",
    "--pass-access-token",
    "--profile",
    "--set-file",
    "--skip-auth-route",
];

#[test]
fn every_flag_that_a_document_names_exists() {
    let tables = fs::read_to_string(repository().join("docs/configuration.md")).unwrap();
    let rows = tables.lines().filter(|line| line.starts_with("| `--"));
    let of_row = |row: &str| flags(row).into_iter().next();
    let of_all = ["--help", "--version", "--config"].map(str::to_owned);
    let known: BTreeSet<String> = rows.filter_map(of_row).chain(of_all).collect();
    let mut missing = Vec::new();
    for document in files_below(repository(), "md") {
        let text = fs::read_to_string(&document).unwrap();
        let named = code(&text)
            .iter()
            .flat_map(|code| flags(code))
            .collect::<BTreeSet<_>>();
        let unknown = named.difference(&known);
        let ours = unknown.filter(|flag| !FOREIGN.contains(&flag.as_str()));
        missing.extend(ours.map(|flag| format!("{}: {flag}", document.display())));
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// Returns the flags in code of Markdown, and the lines that start one of the programs.
fn code(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let mut found = Vec::new();
    for (at, block) in joined.split("```").enumerate() {
        if at % 2 == 1 {
            let starts = |line: &&str| {
                ["sidecar ", "auth-server ", "postern-k8s "]
                    .iter()
                    .any(|name| line.trim_start().starts_with(name))
            };
            found.extend(block.lines().filter(starts).map(str::to_owned));
        } else {
            let spans = block.split('`').skip(1).step_by(2);
            found.extend(
                spans
                    .filter(|span| span.starts_with("--"))
                    .map(str::to_owned),
            );
        }
    }
    found
}

/// Returns the words of a text that are long flags.
fn flags(text: &str) -> Vec<String> {
    let is_name =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let words = text.split(|letter: char| !is_name(letter));
    let flags = words.filter(|word| {
        word.strip_prefix("--")
            .is_some_and(|name| name.starts_with(|first: char| first.is_ascii_lowercase()))
    });
    flags
        .map(|word| word.trim_end_matches('-').to_owned())
        .collect()
}
