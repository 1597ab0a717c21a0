//! Files of settings in the documents: `check` and the published schema accept each.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::actors::programs::{Program, repository};
use tests::tables::json_schema::Schema;
use tests::wire::certificates::write_private;

use super::files_below;

/// A kind of file, with its schema.
struct Kind {
    name: &'static str,
    schema: Schema,
}

impl Kind {
    fn of(name: &'static str) -> Self {
        let path = repository().join(format!("docs/schema/{name}.json"));
        let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        Self {
            name,
            schema: Schema::new(&schema).unwrap(),
        }
    }

    fn all() -> [Self; 3] {
        ["users", "sidecar", "auth-server"].map(Self::of)
    }

    /// Returns what the schema has against the file.
    fn problem(&self, file: &toml::Table) -> Option<String> {
        self.schema.problem(&serde_json::to_value(file).unwrap())
    }
}

/// Returns the blocks of a language with the page of each.
fn blocks(language: &str) -> Vec<(String, String)> {
    let start = format!("```{language}\n");
    let of_page = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let blocks = text.split(&start).skip(1);
        let blocks = blocks.map(|rest| rest.split("```").next().unwrap().to_owned());
        let page = path.display().to_string();
        blocks
            .map(|block| (page.clone(), block))
            .collect::<Vec<_>>()
    };
    let pages = files_below(repository(), "md").into_iter();
    pages.flat_map(of_page).collect()
}

/// Returns the end of `sidecar check` with a file, completed with a source of keys if it has none.
fn check(home: &TempDir, text: &str, file: &toml::Table) -> tests::actors::process::Finished {
    let secrets = home.path().display().to_string();
    let text = text.replace("/etc/postern", &secrets);
    // The pod's own token is at a path of the cluster.
    let kubernetes = "issuer = \"kubernetes:///\"";
    let text = text.replace(
        kubernetes,
        &format!("{kubernetes}\ntoken-file = \"{secrets}/token\"\nca = \"{secrets}/ca.pem\""),
    );
    let path = home.path().join("settings.toml");
    fs::write(&path, text).unwrap();
    let sources = ["auth-server", "issuer-url", "jwks", "issuer"];
    let source = [
        "--issuer-url=https://id.example.com",
        "--audience",
        "orders",
    ];
    let flags: &[&str] = match sources.iter().any(|key| file.contains_key(*key)) {
        true => &[],
        false => &source,
    };
    Program::Sidecar.run(&[&["check", "--config", path.to_str().unwrap()], flags].concat())
}

#[test]
fn every_file_of_settings_in_the_documents_is_accepted() {
    let home = tempfile::tempdir().unwrap();
    write_private(&home.path().join("app-secret"), "secret of an example");
    let authority = tests::wire::certificates::Authority::new();
    fs::copy(authority.file(), home.path().join("ca.pem")).unwrap();
    let claims = json!({"iss": "https://kubernetes.default.svc"});
    let token = tests::actors::token_forge::encode(claims.to_string().as_bytes());
    write_private(&home.path().join("token"), &format!("e30.{token}.e30"));
    let kinds = Kind::all();
    let mut seen = Vec::new();
    for (page, block) in blocks("toml") {
        let file: toml::Table = block
            .parse()
            .unwrap_or_else(|error| panic!("{page}: {error}"));
        let problems: Vec<_> = kinds.iter().map(|kind| kind.problem(&file)).collect();
        let fits = kinds
            .iter()
            .zip(&problems)
            .find(|(_, problem)| problem.is_none());
        let Some((kind, _)) = fits else {
            panic!("{page}: no schema accepts\n{block}\n{problems:#?}");
        };
        seen.push(kind.name);
        if kind.name == "sidecar" {
            let end = check(&home, &block, &file);
            assert_eq!(end.code, Some(0), "{page}:\n{block}\n{}", end.stderr);
        }
    }
    assert!(
        seen.contains(&"sidecar") && seen.contains(&"users"),
        "{seen:?}"
    );
}

#[test]
fn what_check_prints_and_what_it_rejects_the_schema_does_too() {
    let [_, sidecar, auth_server] = Kind::all();
    let flags = [
        "check",
        "--jwks=https://a/",
        "--issuer",
        "i",
        "--audience=b",
    ];
    for (kind, end) in [
        (&sidecar, Program::Sidecar.run(&flags)),
        (&auth_server, Program::AuthServer.run(&["check"])),
    ] {
        let warnings = match end.stdout.matches("# warning: ").count() {
            0 => "no warnings".to_owned(),
            1 => "1 warning".to_owned(),
            many => format!("{many} warnings"),
        };
        assert_eq!(end.stderr, format!("usable, {warnings}\n"));
        let printed: toml::Table = end.stdout.parse().unwrap();
        assert_eq!(kind.problem(&printed), None, "{}", kind.name);
    }
    for (kind, text) in [
        (&sidecar, "upsteam = 'http://127.0.0.1:3000'"),
        (&sidecar, "threads = 'two'"),
        (&sidecar, "enforce = 'off'"),
        (&sidecar, "app-secret = 'a secret'"),
        (&sidecar, "[[issuer]]\nname = 'a'\naudiences = ['b']"),
        (&sidecar, "[[rule]]\nscope = ['a']"),
        (&auth_server, "access-log = 'some'"),
        (&auth_server, "refresh-tokens = 'yes'"),
    ] {
        let file: toml::Table = text.parse().unwrap();
        assert!(kind.problem(&file).is_some(), "{text}");
    }
}
