//! Documents and the code that they describe: the contract and the threat model name existing
//! tests, the OpenAPI document is valid, every link resolves.

use std::fs;
use std::path::{Path, PathBuf};

use postern_contract::rejection::Rejection;
use tests::actors::programs::repository;
use tests::tables::openapi;
use tests::tables::reference;

mod flags;
mod settings;

#[test]
fn the_contract_s_table_and_its_tests_name_each_other() {
    const TABLE: &str = "tests/README.md";
    let table = fs::read_to_string(repository().join(TABLE)).unwrap();
    let (sources, units) = (test_sources(), unit_sources());
    let existing: Vec<&str> = test_names(&sources);
    let units = test_names(&units);
    let named = names_of_tests(&table);
    for name in &named {
        assert!(
            existing.contains(name) || units.contains(name),
            "{TABLE} names {name}, which does not exist"
        );
    }
    for name in existing.iter().filter(|name| name.starts_with("contract_")) {
        assert!(named.contains(name), "{TABLE} does not name {name}");
    }
}

#[test]
fn documents_name_only_tests_that_exist() {
    let sources = test_sources() + &unit_sources();
    let existing = test_names(&sources);
    for (path, least) in [("docs/security.md", 40), ("CONTRIBUTING.md", 15)] {
        let document = fs::read_to_string(repository().join(path)).unwrap();
        let named = names_of_tests(&document);
        assert!(named.len() > least, "{path} has lost its tests");
        for name in named {
            let exists = existing.contains(&name);
            assert!(exists, "{path} names {name}, which does not exist");
        }
    }
}

#[test]
fn every_link_within_the_repository_leads_somewhere() {
    let documents = files_below(repository(), "md");
    assert!(documents.len() > 40, "{documents:?}");
    let broken = documents.iter().flat_map(|from| broken_links(from));
    let others = ["yaml", "yml", "json", "toml", "service", "sh", "rs"].into_iter();
    let others: Vec<_> = others
        .flat_map(|end| files_below(repository(), end))
        .collect();
    let broken = broken.chain(others.iter().flat_map(|from| missing_documents(from)));
    assert_eq!(broken.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Returns the documents that a file of another kind names by their path in the repository, and that
/// do not exist.
fn missing_documents(from: &Path) -> Vec<String> {
    // A JSON Pointer has `~1` in place of a slash.
    let text = fs::read_to_string(from).unwrap().replace("~1", "/");
    let ends_path = |c: char| !c.is_ascii_alphanumeric() && !"/.-_#".contains(c);
    let named = text.split("docs/").skip(1).filter_map(|rest| {
        let path = rest.split(ends_path).next()?.trim_end_matches('.');
        path.contains(".md").then(|| format!("docs/{path}"))
    });
    let root = repository().join("README.md");
    named
        .filter(|path| !leads_somewhere(&root, path))
        .map(|path| format!("{}: {path}", from.display()))
        .collect()
}

fn broken_links(from: &Path) -> Vec<String> {
    let text = fs::read_to_string(from).unwrap();
    let links = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    links
        .filter(|link| !link.contains("://") && !leads_somewhere(from, link))
        .map(|link| format!("{}: {link}", from.display()))
        .collect()
}

/// Returns true if the file exists, and the heading behind `#` as well.
fn leads_somewhere(from: &Path, link: &str) -> bool {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let to = match file {
        "" => from.to_owned(),
        file => from.parent().unwrap().join(file),
    };
    if heading.is_empty() {
        return to.exists();
    }
    let text = fs::read_to_string(to).unwrap_or_default();
    let mut headings = text.lines().filter(|line| line.starts_with('#'));
    headings.any(|line| anchor(line.trim_start_matches('#').trim()) == heading)
}

/// Returns a heading's name in links, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let lower = heading.to_lowercase();
    let kept = lower
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_source_file_that_a_document_names_exists() {
    let sources = files_below(repository(), "rs");
    let mut missing = Vec::new();
    for document in files_below(repository(), "md") {
        let text = fs::read_to_string(&document).unwrap();
        let words = text.split('`').skip(1).step_by(2);
        let named = words.filter(|word| word.ends_with(".rs") && !word.contains(' '));
        missing.extend(
            named
                .filter(|name| !sources.iter().any(|path| path.ends_with(name)))
                .map(|name| format!("{}: {name}", document.display())),
        );
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn every_path_that_tells_contributors_where_to_begin_exists() {
    let text = fs::read_to_string(repository().join("CONTRIBUTING.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let rows = rows.take_while(|row| !row.starts_with("| command "));
    let words = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let paths = words.filter(|word| !is_test_name(word));
    let exists = |path: &&str| {
        ["", ".rs"]
            .iter()
            .any(|end| repository().join(format!("{path}{end}")).exists())
    };
    let (known, missing): (Vec<&str>, Vec<&str>) = paths.partition(exists);
    assert!(known.len() > 30, "{known:?}");
    assert_eq!(missing, Vec::<&str>::new());
}

/// Fuzzing and simulation cover the released code: each package has one version.
#[test]
fn other_workspaces_are_locked_to_the_versions_of_the_product() {
    let shipped = locked("Cargo.lock");
    for (file, script) in [
        ("fuzz/Cargo.lock", "scripts/fuzz.sh"),
        ("tests/simulation/Cargo.lock", "scripts/simulate.sh"),
    ] {
        for (name, version) in locked(file) {
            let known: Vec<_> = shipped.iter().filter(|(other, _)| *other == name).collect();
            let same = known.iter().any(|(_, other)| *other == version);
            assert!(
                known.is_empty() || same,
                "{file} has {name} {version}: see {script}"
            );
        }
    }
}

/// Returns name and version of each package of a lock file.
fn locked(file: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(repository().join(file)).unwrap();
    let lock: toml::Table = toml::from_str(&text).unwrap();
    let packages = lock["package"].as_array().unwrap();
    let text = |value: &toml::Value| value.as_str().unwrap().to_owned();
    packages
        .iter()
        .map(|package| (text(&package["name"]), text(&package["version"])))
        .collect()
}

/// Returns the sources of the end-to-end tests and of the properties of `contract`.
fn test_sources() -> String {
    sources_below(&["tests/tests", "crates/contract/tests"])
}

fn unit_sources() -> String {
    sources_below(&["auth-server/src", "crates", "sidecar/src"])
}

fn sources_below(directories: &[&str]) -> String {
    directories
        .iter()
        .flat_map(|directory| files_below(&repository().join(directory), "rs"))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

/// Returns the functions behind `#[test]` and `#[tokio::test]`, including those within a macro.
fn test_names(source: &str) -> Vec<&str> {
    let after_attribute = source.split("test]\n").skip(1);
    after_attribute.filter_map(function_name).collect()
}

fn function_name(source: &str) -> Option<&str> {
    let item = source.trim_start();
    let item = item.strip_prefix("async ").unwrap_or(item);
    item.strip_prefix("fn ")?.split('(').next()
}

/// Returns the names that a document has in backquotes.
fn names_of_tests(document: &str) -> Vec<&str> {
    document
        .split('`')
        .filter(|word| is_test_name(word))
        .collect()
}

fn is_test_name(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    word.matches('_').count() >= 4 && word.bytes().all(plain)
}

fn files_below(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !is_foreign(&path) {
            files.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files
}

/// Returns true for files of tools in a checkout: build output, environments, the repository
/// itself.
fn is_foreign(directory: &Path) -> bool {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    ["target", "node_modules"].contains(&&*name) || name.starts_with('.')
}

#[test]
fn contract_4_the_openapi_document_is_usable() {
    let document = openapi::document().value();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, method) in [
        ("/oauth/jwt/token", "post"),
        ("/current/user/details", "get"),
        ("/client/user/secret/key", "get"),
    ] {
        assert!(
            document["paths"][path][method].is_object(),
            "{method} {path}"
        );
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        openapi::document()
            .compile(schema)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let user = &document["components"]["schemas"]["CurrentUserDetails"];
    assert_eq!(user["required"].as_array().map(Vec::len), Some(27));
}

/// Returns both texts of each reason, under a heading that links can name.
fn reason_sections() -> String {
    let mut text = String::new();
    for rejection in Rejection::ALL {
        let help = rejection.help();
        text += &format!("### `{rejection}` · {}\n", rejection.status().as_u16());
        text += &format!("{}\n\n**What to do.** {}\n\n", help.cause, help.action);
    }
    text
}

#[test]
fn every_reason_code_has_its_cause_and_remedy_in_the_document() {
    const REASONS: &str = "docs/reasons.md";
    const START: &str = "POSTERN_UPDATE_DOCS=1 -->\n";
    let path = repository().join(REASONS);
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(START).unwrap();
    let (_, after) = rest.split_once("<!-- end -->").unwrap();
    let updated = format!("{before}{START}{}<!-- end -->{after}", reason_sections());
    reference::hold(&path, &updated);
}
