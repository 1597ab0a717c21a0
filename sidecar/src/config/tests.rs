#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::cli::issuer_table::IssuerTable;
use crate::cli::{Cli, Command};
use postern_process::command_line::texts::List;

const AUTH_SERVER: [&str; 2] = ["--auth-server", "http://127.0.0.1:9000/auth"];
const APPLICATION: [&str; 4] = ["--app-id", "orders", "--app-secret", "hush"];

fn config(arguments: &[&str]) -> Result<Config, ExitError> {
    let line = [&["sidecar", "serve"], arguments].concat();
    match postern_process::command_line::parse_words::<Cli>(line)?.command {
        Command::Serve(args) => Config::new(&args),
        other => unreachable!("{other:?}"),
    }
}

fn with(arguments: &[&str]) -> Result<Config, ExitError> {
    config(&[&AUTH_SERVER[..], &APPLICATION, arguments].concat())
}

/// A table of settings that stop the start.
#[derive(serde::Deserialize)]
struct Bad<B> {
    group: Vec<Group<B>>,
}

#[derive(serde::Deserialize)]
struct Group<B> {
    base: B,
    /// Rows: the part behind the base, and last a part of the line.
    rows: Vec<Vec<String>>,
}

fn assert_is_named(row: &[String], end: Result<Config, ExitError>) {
    let Err(failure @ (ExitError::Config(_) | ExitError::Usage(_))) = end else {
        unreachable!("{row:?}: {end:?}")
    };
    let (line, says) = (failure.to_string(), row.last().unwrap());
    assert!(
        line.contains(says) && !line.contains('\n'),
        "{row:?}: {line}"
    );
    assert!(!line.contains("hush"), "{line}");
}

#[test]
fn each_bad_setting_is_one_line_that_names_it() {
    let table = include_str!("../../../tests/data/bad_settings.toml");
    let table: Bad<Vec<String>> = toml::from_str(table).unwrap();
    for Group { base, rows } in &table.group {
        for row in rows {
            let flags = base.iter().chain(&row[..row.len() - 1]);
            let flags: Vec<_> = flags.map(String::as_str).collect();
            assert_is_named(row, config(&flags));
        }
    }
}

#[test]
fn the_cluster_is_an_issuer_by_its_address() {
    let words = [
        "sidecar",
        "serve",
        "--issuer-url=kubernetes:///",
        "--audience=orders",
    ];
    let parsed = postern_process::command_line::parse_words::<Cli>(words).unwrap();
    let Command::Serve(args) = parsed.command else {
        unreachable!("{parsed:?}");
    };
    let table = IssuerTable {
        issuer: Some("kubernetes:///".parse().unwrap()),
        audience: Some(List(vec!["orders".parse().unwrap()])),
        ..IssuerTable::default()
    };
    assert_eq!(args.all_issuers().unwrap(), [table]);
}

#[test]
fn each_bad_table_is_one_line_that_names_it() {
    let files = [
        include_str!("../../../tests/data/bad_issuers.toml"),
        include_str!("../../../tests/data/bad_rules.toml"),
    ];
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("sidecar.toml");
    let check = |row: &[String], text: &str| {
        std::fs::write(&file, text).unwrap();
        let flags = ["--config", file.to_str().unwrap(), "--app-secret", "hush"];
        assert_is_named(row, config(&flags));
    };
    const IDP: &str = "[[issuer]]\nname = 'idp'\nissuer = 'https://idp/'\naudience = ['a']\n\
                       jwks = 'https://idp/keys'\n";
    for file in files {
        let table: Bad<String> = toml::from_str(file).unwrap();
        for Group { base, rows } in &table.group {
            for row in rows {
                check(row, &(base.clone() + &row[0].replace("{{idp}}", IDP)));
            }
        }
    }
    let one = |number| IDP.replace("idp", &format!("idp-{number}"));
    check(&["16".to_owned()], &(0..17).map(one).collect::<String>());
}

const ISSUER: [&str; 6] = [
    "--jwks",
    "https://idp/keys",
    "--issuer",
    "https://idp/",
    "--audience",
    "orders",
];

#[test]
fn plain_http_over_a_network_is_warned_about() {
    for (flag, url, warnings) in [
        ("--auth-server", "http://auth:9000/auth", 1),
        ("--auth-server", "https://auth:9000/auth", 0),
        ("--auth-server", "http://10.0.0.1:9000/auth", 1),
        ("--auth-server", "http://127.0.0.1:9000/auth", 0),
        ("--auth-server", "http://[::1]:9000/auth", 0),
        ("--auth-server", "http://localhost/auth", 0),
        ("--auth-server", "dns://localhost:9000/auth", 0),
        ("--auth-server", "dns://127.evil:9000/auth", 1),
        ("--auth-server", "dns+https://auth:9000/auth", 0),
        ("--auth-server", "nacos://127.0.0.1/auth", 1),
        ("--auth-server", "nacos+https://registry/auth", 0),
        ("--jwks", "http://idp/keys", 1),
        ("--jwks", "https://idp/keys", 0),
        ("--jwks", "http://127.0.0.1:9/keys", 0),
        ("--jwks", "http://[::1]:9/keys", 0),
        ("--jwks", "http://localhost:9/keys", 0),
    ] {
        let more = match flag {
            "--jwks" => &ISSUER[2..],
            _ => &APPLICATION,
        };
        let config = config(&[&[flag, url], more].concat()).unwrap();
        let said = config.warnings();
        assert_eq!(said.len(), warnings, "{url}");
        assert!(said.iter().all(|warning| warning.starts_with(flag)));
    }
}

#[test]
fn what_is_allowed_against_the_rule_is_warned_about() {
    let config = with(&[
        "--allow-no-exp",
        "--accept-bound-tokens",
        "--upstream-reuse-after-body",
        "--signing-type",
        "hmac",
        "--trust-shared-secret",
    ])
    .unwrap();
    assert_eq!(config.warnings().len(), 4);
}

#[test]
fn several_members_in_one_are_warned_about() {
    for (flag, warnings) in [
        ("--audience=a,b", 0),
        ("--audience=a;b", 1),
        ("--audience=a b", 1),
        ("--claim-header=X-A=Full Name,X-B=b", 0),
        ("--claim-header=X-A=a;X-B=b", 1),
        ("--claim-header=X-A=a X-B=b", 1),
    ] {
        let said = with(&[flag]).unwrap().warnings();
        assert_eq!(said.len(), warnings, "{flag}: {said:?}");
        assert!(
            said.iter()
                .all(|line| line.contains("commas separate several"))
        );
    }
}

#[test]
fn a_secret_is_in_no_debug_output() {
    assert!(!format!("{:?}", with(&[]).unwrap()).contains("hush"));
}
