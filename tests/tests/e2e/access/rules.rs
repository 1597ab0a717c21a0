//! `[[rule]]` and methods of public paths: `data/rules.toml` through a real sidecar, and what `sidecar
//! check` and `sidecar explain` say of rules.

use serde::Deserialize;
use serde_json::{Value, json};
use tests::actors::client::Request;
use tests::actors::process::Finished;
use tests::actors::stack::ForgedStack;
use tests::tables::{self, Verdicts};
use tests::wire::clock;
use tests::wire::raw_client::exchange;

use crate::e2e::configuration::command_line::{CONFIG, SIDECAR};

/// `rules.toml`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleTable {
    group: Vec<RuleGroup>,
}

/// Rows that share a configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleGroup {
    name: String,
    config: String,
    row: Vec<RuleRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleRow {
    #[serde(default = "get")]
    method: String,
    /// Below the context path.
    path: String,
    /// JSON; without it there is no token.
    claims: Option<String>,
    #[serde(default)]
    lines: Vec<String>,
    /// `verified`, `passed`, `responded`, or status and reason code.
    expect: String,
    why: String,
}

fn get() -> String {
    "GET".to_owned()
}

#[test]
fn every_row_of_the_rule_table_gets_its_verdict() {
    let mut verdicts = Verdicts::default();
    for group in tables::load::<RuleTable>("rules.toml").group {
        let stack = ForgedStack::configured(&group.config);
        for row in &group.row {
            for time in ["first", "again"] {
                let name = format!(
                    "{} {} {} [{}], {time} ({})",
                    row.method,
                    row.path,
                    row.claims.as_deref().unwrap_or("without a token"),
                    group.name,
                    row.why
                );
                verdicts.row(&name, observe(&stack, row).err());
            }
        }
    }
    verdicts.conclude();
}

fn observe(stack: &ForgedStack, row: &RuleRow) -> Result<(), String> {
    let mut request = Request::new(&row.method, format!("/orders{}", row.path));
    if row.path.starts_with("//") {
        request = Request::new(&row.method, row.path.replacen("//", "//orders/", 1));
    }
    if let Some(claims) = &row.claims {
        let claims: Value = serde_json::from_str(claims).unwrap();
        // The same text for the same claims, so that the second one is a remembered token.
        let token = stack.forge.token(clock::now() / 1000 * 1000, &claims);
        request = request.line(format!("Authorization: Bearer {token}"));
    }
    let request = request.lines(&row.lines);
    stack.service.take_requests();
    let bytes = request.bytes("service.example");
    let response = exchange(stack.sidecar.address(), &row.method, &bytes);
    let seen = stack.service.take_requests();
    let users: usize = seen
        .iter()
        .map(|seen| seen.header("x-current-user").len())
        .sum();
    let found = match (response.status(), seen.len(), users) {
        (200, 1, 1) => "verified".to_owned(),
        (200, 1, 0) => "passed".to_owned(),
        (200, 0, _) => "responded".to_owned(),
        (status, 0, _) if row.method == "HEAD" => status.to_string(),
        _ => response.verdict(),
    };
    let as_expected = found == row.expect || (row.expect == "200" && response.status() == 200);
    match as_expected {
        true => Ok(()),
        false => Err(format!("{found}, and the service received {}", seen.len())),
    }
}

fn check(config: &str, flags: &[&str]) -> Finished {
    tests::actors::sidecar::check(config, &[&SIDECAR[1..], flags].concat())
}

const ADMIN: &str = "[[rule]]\nname = 'admin'\npaths = ['/admin/**']\nscope = ['admin', 'root']\n";

#[test]
fn explain_lists_the_rules_with_what_they_need_and_find() {
    let stack = ForgedStack::configured(&format!("{ADMIN}[[rule]]\npaths = ['/**']\n"));
    let token = stack.forge.token(clock::now(), &json!({"scp": ["user"]}));
    let line = format!("Authorization: Bearer {token}");
    let explained = |flags: &[&str]| {
        let arguments = [flags, &["/orders/admin/x"]].concat();
        stack.sidecar.explain(&arguments, &[&line]).stdout
    };
    let json: Value = serde_json::from_str(&explained(&["--json"])).unwrap();
    assert_eq!(json["reason"], "insufficient_scope");
    assert_eq!(
        json["rules"],
        json!([
            "✗ admin: needs scope admin or root; found scp = [\"user\"]",
            "✓ rule-2: needs a valid token; found none of these claims",
        ])
    );
    let line = "✗ admin: needs scope admin or root; found scp = [\"user\"]";
    let text = explained(&[]);
    assert!(text.contains(line), "{text}");
}

#[test]
fn rules_for_a_path_that_could_be_any_are_explained() {
    let stack = ForgedStack::configured(
        "default-rule = 'deny'\n[[rule]]\npaths = ['/api/**']\n[[rule]]\npaths = ['/admin/**']\n",
    );
    let line = format!("Authorization: Bearer {}", stack.token());
    let differently = "never public: programs read %2F in 'a%2Fb' differently";
    for (path, rules, why) in [
        // The reason, and both rules.
        ("/orders/api/a%2Fb", 3, differently),
        ("/orders/list", 0, "/list matches no public path"),
        ("/orders/api%40", 0, "/api%40 matches no public path"),
    ] {
        let explained = stack.sidecar.explain(&["--json", path], &[&line]).stdout;
        let explained: Value = serde_json::from_str(&explained).unwrap();
        assert_eq!(explained["reason"], "no_rule", "{path}");
        let found = explained["rules"].as_array().map_or(0, Vec::len);
        assert_eq!(found, rules, "{path}: {explained}");
        let found = explained["path"].to_string();
        assert!(found.contains(why), "{path}: {explained}");
        let action = explained["to do"].to_string();
        assert!(action.contains("a rule for `/**`"), "{path}: {explained}");
    }
}

/// `rule_warnings.toml`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Warnings {
    row: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    config: String,
    warning: Option<String>,
}

#[test]
fn check_names_rules_without_effect() {
    let end = check(
        &format!(
            "{ADMIN}[[rule]]\npaths = ['/a.b/*.png']\nmethods = ['PUT']\nclaims = {{ x = [1] }}\n"
        ),
        &[],
    );
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    assert!(
        end.stdout.contains("[[rule]]\nname = \"admin\""),
        "{}",
        end.stdout
    );
    // What it prints is a file that means the same.
    let again = check(&end.stdout, &[]);
    assert_eq!(
        (again.code, &again.stdout),
        (Some(0), &end.stdout),
        "{}",
        again.stderr
    );
    for Row { config, warning } in tables::load::<Warnings>("rule_warnings.toml").row {
        let end = check(&config, &[]);
        assert_eq!(end.code, Some(0), "{config}: {}", end.stderr);
        let mut warnings = end
            .stdout
            .lines()
            .filter(|line| line.starts_with("# warning: [[rule]]"));
        let Some(warning) = warning else {
            assert_eq!(warnings.next(), None, "{config}");
            continue;
        };
        assert!(
            warnings.any(|line| line.contains(&warning)),
            "{config}: {}",
            end.stdout
        );
        assert_eq!(check(&config, &["--strict"]).code, Some(CONFIG), "{config}");
    }
}
