//! Documents that are held to the truth: the configuration reference to `--help`, the table of the contract
//! and the threat model to the tests that exist, the API document to the table of rejections, the OpenAPI
//! document to its own schema rules, every link to what it leads to.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use contract::rejection::Rejection;
use tests::openapi;
use tests::process::CommandLine;
use tests::programs::{Program, repository};

const CONFIGURATION: &str = "docs/configuration.md";
/// What rewrites the generated blocks instead of comparing them.
const UPDATE: &str = "POSTERN_UPDATE_DOCS";

/// Every command that has help of its own.
const COMMANDS: &[(Program, &str)] = &[
    (Program::AuthServer, ""),
    (Program::AuthServer, "serve"),
    (Program::AuthServer, "check"),
    (Program::AuthServer, "healthcheck"),
    (Program::AuthServer, "keys"),
    (Program::AuthServer, "keys show"),
    (Program::AuthServer, "keys rotate"),
    (Program::AuthServer, "keys revoke"),
    (Program::AuthServer, "keys reencrypt"),
    (Program::AuthServer, "keys export-public"),
    (Program::AuthServer, "application"),
    (Program::AuthServer, "application add"),
    (Program::AuthServer, "application ensure"),
    (Program::AuthServer, "application list"),
    (Program::AuthServer, "application rotate-secret"),
    (Program::AuthServer, "application remove"),
    (Program::AuthServer, "token"),
    (Program::AuthServer, "token inspect"),
    (Program::AuthServer, "user"),
    (Program::AuthServer, "user add"),
    (Program::AuthServer, "user list"),
    (Program::AuthServer, "user set-password"),
    (Program::AuthServer, "user disable"),
    (Program::AuthServer, "user enable"),
    (Program::AuthServer, "user remove"),
    (Program::Sidecar, ""),
    (Program::Sidecar, "serve"),
    (Program::Sidecar, "check"),
    (Program::Sidecar, "explain"),
    (Program::Sidecar, "healthcheck"),
    (Program::Sidecar, "drain"),
    (Program::Sidecar, "wait"),
];

fn help(program: Program, command: &str) -> String {
    let end = CommandLine::new(program.path())
        .arguments(command.split_whitespace())
        .arguments(["--help"])
        .environment("COLUMNS", "100")
        .run();
    assert_eq!(
        end.code,
        Some(0),
        "{} {command} --help: {}",
        program.name(),
        end.stderr
    );
    let lines: Vec<&str> = end.stdout.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}

/// The names of the subcommands in a help text.
fn subcommands(help: &str) -> Vec<String> {
    let list = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let names = list.filter_map(|line| {
        line.strip_prefix("  ")
            .filter(|line| !line.starts_with(' '))
    });
    names
        .filter_map(|line| line.split(' ').next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_configuration_reference_shows_the_help_of_every_command() {
    let path = repository().join(CONFIGURATION);
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let updated = COMMANDS
        .iter()
        .fold(text.clone(), |text, (program, command)| {
            let name = format!("{} {command}", program.name())
                .trim_end()
                .to_owned();
            replace_block(&text, &name, &documented_help(*program, command))
        });
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, updated).unwrap();
    } else {
        assert_eq!(
            text, updated,
            "{CONFIGURATION} is out of date: {UPDATE}=1 makes this test rewrite it"
        );
    }
}

/// The help of a command as the document shows it: options that read as under `serve` are only named.
fn documented_help(program: Program, command: &str) -> String {
    let text = help(program, command);
    let serve = help(program, "serve");
    let Some((head, options)) = text.split_once("\nOptions:\n") else {
        return text;
    };
    let of_serve: BTreeSet<String> = options_of(&serve).map(in_one_line).collect();
    let is_shared =
        |option: &&str| flag_of(option).is_some() && of_serve.contains(&in_one_line(option));
    let (shared, own): (Vec<&str>, Vec<&str>) = options_of(options).partition(is_shared);
    if command == "serve" || shared.len() < 2 {
        return text;
    }
    let all = options_of(&serve).filter_map(flag_of).count();
    let named = if shared.len() == all {
        "      all of them".to_owned()
    } else {
        wrapped(shared.into_iter().filter_map(flag_of))
    };
    let own = own.concat();
    let own = own.trim_end();
    let serve = format!("{} serve", program.name());
    format!("{head}\nOptions:\n{own}\n\nOptions of `{serve}`, with the same meaning:\n{named}")
}

/// Each option of a help text with its description.
fn options_of(help: &str) -> impl Iterator<Item = &str> {
    let begins = |line: &str| line.trim_start().starts_with('-') && !line.starts_with("       ");
    let lines = help.split_inclusive('\n');
    let starts = lines.scan(0, move |at, line| {
        let start = *at;
        *at += line.len();
        Some(begins(line).then_some(start))
    });
    let starts: Vec<usize> = starts.flatten().collect();
    let ends = starts.clone().into_iter().skip(1).chain([help.len()]);
    starts
        .into_iter()
        .zip(ends)
        .map(|(start, end)| &help[start..end])
}

/// `--flag` of an option; none for those with a short form, `--help` and `--version`.
fn flag_of(option: &str) -> Option<&str> {
    option
        .split_whitespace()
        .next()?
        .split('[')
        .next()
        .filter(|name| name.starts_with("--"))
}

/// Short and long help break their lines in different places.
fn in_one_line(option: &str) -> String {
    option.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Words in lines as wide as those of the help.
fn wrapped<'w>(words: impl Iterator<Item = &'w str>) -> String {
    const INDENT: &str = "     ";
    let mut lines = Vec::new();
    let mut line = INDENT.to_owned();
    for word in words {
        if line.len() + word.len() >= 100 {
            lines.push(std::mem::replace(&mut line, INDENT.to_owned()));
        }
        line += &format!(" {word}");
    }
    lines.push(line);
    lines.join("\n")
}

/// Replaces what stands between `<!-- help: NAME -->` and `<!-- end -->`.
fn replace_block(text: &str, name: &str, help: &str) -> String {
    let start = format!("<!-- help: {name} -->\n");
    let (before, rest) = text
        .split_once(&start)
        .unwrap_or_else(|| panic!("{CONFIGURATION} has no block `{name}`"));
    let (_, after) = rest
        .split_once("<!-- end -->")
        .unwrap_or_else(|| panic!("the block `{name}` has no end"));
    format!("{before}{start}```text\n{help}\n```\n<!-- end -->{after}")
}

#[test]
fn no_command_is_missing_from_the_configuration_reference() {
    for &(program, command) in COMMANDS {
        for below in subcommands(&help(program, command)) {
            let full = format!("{command} {below}").trim_start().to_owned();
            let known = COMMANDS.contains(&(program, full.as_str()));
            assert!(
                known,
                "{} {full} is not in the list of documented commands",
                program.name()
            );
        }
    }
}

#[test]
fn every_flag_of_serve_has_its_environment_variable() {
    for program in Program::ALL {
        let lines = help(program, "serve");
        // Long descriptions push the variable onto the next line, or break it in two.
        let text: String = lines.split_whitespace().collect::<Vec<_>>().join(" ");
        for flag in lines
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("--"))
        {
            let name = flag.split([' ', '[']).next().unwrap_or_default();
            let variable = format!("POSTERN_{}", name.to_uppercase().replace('-', "_"));
            // Without `=` where the value is a secret.
            let shown = ["=", "]"]
                .iter()
                .any(|end| text.contains(&format!("[env: {variable}{end}")));
            assert!(shown, "--{name} of {} has no {variable}", program.name());
        }
    }
}

#[test]
fn every_test_that_the_table_of_the_contract_names_exists_and_every_contract_test_is_named() {
    const TABLE: &str = "tests/README.md";
    let table = fs::read_to_string(repository().join(TABLE)).unwrap();
    let sources = test_sources();
    let existing: Vec<&str> = test_names(&sources);
    let named = names_of_tests(&table);
    for name in &named {
        assert!(
            existing.contains(name),
            "{TABLE} names {name}, which does not exist"
        );
    }
    for name in existing.iter().filter(|name| name.starts_with("contract_")) {
        assert!(named.contains(name), "{TABLE} does not name {name}");
    }
}

#[test]
fn the_threat_model_names_only_tests_that_exist() {
    let document = fs::read_to_string(repository().join("docs/security.md")).unwrap();
    let sources = test_sources() + &sources_below(&["auth-server/src", "contract/process/src"]);
    let existing: Vec<&str> = test_names(&sources);
    let named = names_of_tests(&document);
    assert!(named.len() > 40, "the document has lost its tests");
    for name in named {
        assert!(
            existing.contains(&name),
            "docs/security.md names {name}, which does not exist"
        );
    }
}

#[test]
fn every_link_within_the_repository_leads_somewhere() {
    let documents = files_below(repository(), "md");
    assert!(documents.len() > 40, "{documents:?}");
    let broken: Vec<String> = documents
        .iter()
        .flat_map(|from| broken_links(from))
        .collect();
    assert_eq!(broken, Vec::<String>::new());
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

/// The file is there, and so is the heading behind `#`.
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

/// A heading's name in links, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let lower = heading.to_lowercase();
    let kept = lower
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn a_link_that_leads_nowhere_is_found_out() {
    let from = repository().join("README.md");
    for link in [
        "docs/api.md",
        "docs/api.md#the-envelope",
        "#try-it",
        "docs/adr",
    ] {
        assert!(leads_somewhere(&from, link), "{link}");
    }
    for link in [
        "docs/no.md",
        "docs/api.md#no-such-heading",
        "#no-such-heading",
    ] {
        assert!(!leads_somewhere(&from, link), "{link}");
    }
}

/// What is fuzzed is what is shipped: the packages of both have one version.
#[test]
fn the_fuzz_targets_are_locked_to_the_versions_of_the_product() {
    let shipped = locked("Cargo.lock");
    for (name, version) in locked("fuzz/Cargo.lock") {
        let known: Vec<_> = shipped.iter().filter(|(other, _)| *other == name).collect();
        let same = known.iter().any(|(_, other)| *other == version);
        assert!(
            known.is_empty() || same,
            "fuzz/Cargo.lock has {name} {version}: see scripts/fuzz.sh"
        );
    }
}

/// Name and version of each package of a lock file.
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

/// The end-to-end tests and the properties of the contract crate.
fn test_sources() -> String {
    sources_below(&["tests/tests", "contract/tests"])
}

fn sources_below(directories: &[&str]) -> String {
    directories
        .iter()
        .flat_map(|directory| files_below(&repository().join(directory), "rs"))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

/// The functions behind `#[test]` and `#[tokio::test]`, those within a macro too.
fn test_names(source: &str) -> Vec<&str> {
    let after_attribute = source.split("test]\n").skip(1);
    after_attribute.filter_map(function_name).collect()
}

fn function_name(source: &str) -> Option<&str> {
    let item = source.trim_start();
    let item = item.strip_prefix("async ").unwrap_or(item);
    item.strip_prefix("fn ")?.split('(').next()
}

/// What a document names in backquotes.
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

/// What tools leave in a checkout: build output, environments, the repository itself.
fn is_foreign(directory: &Path) -> bool {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    name == "target" || name.starts_with('.')
}

#[test]
fn contract_4_the_openapi_document_describes_the_three_endpoints_and_holds_only_usable_schemas() {
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

#[test]
fn the_api_document_lists_every_reason_code_with_its_status_and_meaning() {
    let api = fs::read_to_string(repository().join("docs/api.md")).unwrap();
    let listed: Vec<&str> = api
        .lines()
        .skip_while(|line| !line.starts_with("| reason |"))
        .skip(2)
        .collect();
    let expected: Vec<String> = Rejection::ALL
        .iter()
        .map(|rejection| {
            let status = rejection.status().as_u16();
            format!("| `{rejection}` | {status} | {} |", rejection.message())
        })
        .collect();
    assert_eq!(listed, expected);
}

/// Both texts of a reason, under a heading that can be linked to.
fn reason_sections() -> String {
    let mut text = String::new();
    for rejection in Rejection::ALL {
        let remedy = rejection.remedy();
        text += &format!("### `{rejection}` · {}\n", rejection.status().as_u16());
        text += &format!("{}\n\n**What to do.** {}\n\n", remedy.cause, remedy.remedy);
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
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, updated).unwrap();
    } else {
        assert_eq!(
            text, updated,
            "{REASONS} is out of date: {UPDATE}=1 rewrites it"
        );
    }
}
