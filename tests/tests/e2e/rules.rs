//! `[[rule]]` and methods of public paths: `data/rules.toml` and `data/bad_rules.toml` through a real
//! sidecar, and the path tables with a rule in place of the pass list.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use tests::client::{Request, verdict};
use tests::clock::{self, within_one_second};
use tests::keys::SigningType;
use tests::message::Message;
use tests::programs::Program;
use tests::raw_client::exchange;
use tests::stack::ForgedStack;
use tests::tables::{self, PathClass, PathGroup, PathRow, PathTable, Verdicts};
use tests::template;
use tests::token_forge::Forge;
use tests::token_rows::{KeySetShape, Policy, TokenTable};
use wire::http::path_patterns::PassList;
use wire::http::request_path::RequestPath;

use super::command_line::{CONFIG, SIDECAR};
use super::reload::Reloading;

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
    /// `verified`, `passed`, `answered`, or status and reason code.
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
        let reloading = Reloading::with(&group.config);
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
                verdicts.row(&name, observe(&reloading.stack, row).err());
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
    for line in &row.lines {
        request = request.line(line.as_str());
    }
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
        (200, 0, _) => "answered".to_owned(),
        (status, 0, _) if row.method == "HEAD" => status.to_string(),
        _ => verdict(&response),
    };
    let as_expected = found == row.expect || (row.expect == "200" && response.status() == 200);
    match as_expected {
        true => Ok(()),
        false => Err(format!("{found}, and the service received {}", seen.len())),
    }
}

fn check(config: &str, flags: &[&str]) -> tests::process::Finished {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("sidecar.toml");
    std::fs::write(&file, config).unwrap();
    let file = ["--config", file.to_str().unwrap()];
    Program::Sidecar.run(&[&["check"], &SIDECAR[1..], &file, flags].concat())
}

const ADMIN: &str = "[[rule]]\nname = 'admin'\npaths = ['/admin/**']\nscope = ['admin', 'root']\n";

#[test]
fn a_rejection_by_a_rule_is_challenged_and_counted() {
    let reloading = Reloading::with(ADMIN);
    let (sidecar, token) = (reloading.sidecar(), reloading.stack.token());
    let rejected = "postern_sidecar_rule_refusals_total{rule=\"admin\"}";
    assert_eq!(sidecar.metric(rejected), Some(0));
    let response = sidecar.bearing(&token).get("/admin/x");
    assert_eq!(verdict(&response), "403 insufficient_scope");
    let challenge = response.header("www-authenticate").concat();
    for part in [
        r#"Bearer realm="postern", error="insufficient_scope""#,
        r#"scope="admin root""#,
        r#"reason="insufficient_scope""#,
    ] {
        assert!(challenge.contains(part), "{challenge}");
    }
    assert_eq!(sidecar.metric(rejected), Some(1));
    let counted = "postern_sidecar_requests_total{outcome=\"refused\",reason=\"insufficient_scope\",code=\"4xx\"}";
    assert_eq!(sidecar.metric(counted), Some(1));
    assert_eq!(reloading.stack.service.requests().len(), 0);
}

#[test]
fn rules_change_as_a_whole_and_hold_for_remembered_tokens() {
    let reloading = Reloading::with(ADMIN);
    let claims = json!({"scope": "admin"});
    let token = reloading.stack.forge.token(clock::now(), &claims);
    let of_token = || verdict(&reloading.sidecar().bearing(&token).get("/admin/x"));
    assert_eq!([of_token(), of_token()], ["200", "200"]);
    let other = ADMIN.replace("'admin', 'root'", "'root'");
    reloading.reload(&other, "applied");
    assert_eq!(
        [of_token(), of_token()],
        ["403 insufficient_scope", "403 insufficient_scope"]
    );
    // Half of it is not applied.
    let broken = format!("public-path = ['/admin/x']\n{ADMIN}[[rule]]\npaths = []\n");
    reloading.reload(&broken, "refused");
    assert_eq!(of_token(), "403 insufficient_scope");
    reloading.reload(ADMIN, "applied");
    assert_eq!(of_token(), "200");
    reloading.reload("", "applied");
    let plain = reloading.stack.token();
    assert_eq!(
        verdict(&reloading.sidecar().bearing(&plain).get("/admin/x")),
        "200"
    );
}

#[test]
fn explain_lists_the_rules_with_what_they_need_and_find() {
    let reloading = Reloading::with(&format!("{ADMIN}[[rule]]\npaths = ['/**']\n"));
    let token = reloading
        .stack
        .forge
        .token(clock::now(), &json!({"scp": ["user"]}));
    let line = format!("Authorization: Bearer {token}");
    let explained = |flags: &[&str]| {
        let arguments = [flags, &["/orders/admin/x"]].concat();
        reloading.sidecar().explain(&arguments, &[&line]).stdout
    };
    let json: Value = serde_json::from_str(&explained(&["--json"])).unwrap();
    assert_eq!(json["verdict"]["reason"], "insufficient_scope");
    assert_eq!(
        json["rules"],
        json!([
            {"name": "admin", "needs": "scope admin or root", "found": "scp = [\"user\"]", "holds": false},
            {"name": "rule-2", "needs": "a valid token", "found": "none of these claims", "holds": true},
        ])
    );
    let line = "✗ admin: needs scope admin or root; found scp = [\"user\"]";
    let text = explained(&[]);
    assert!(text.contains(line), "{text}");
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
    for (config, warning) in [
        (
            "[[rule]]\npaths = ['/current/user/details']\nscope = ['a']",
            "no request reaches it",
        ),
        ("[[rule]]\npaths = ['/a']", "has neither scope nor claims"),
        (
            "app-name = 'shop'\n[[rule]]\npaths = ['/shop/a']\nscope = ['a']",
            "relative to the context path",
        ),
        (
            "[[rule]]\npaths = ['/a?b=1']\nscope = ['a']",
            "the query of a request is never compared",
        ),
        (
            "optional-auth-path = ['/a/**']\n[[rule]]\npaths = ['/a/b']\nscope = ['a']",
            "--optional-auth-path lists it",
        ),
        (
            "[[rule]]\npaths = ['/a']\nclaims = { 'realm.roles' = ['x'] }",
            "/realm/roles",
        ),
        (
            "public-path = ['/*/*.js']\n[[rule]]\npaths = ['/admin/**']\nscope = ['a']",
            "without a token, --public-path '/*/*.js' opens part of it",
        ),
        (
            "public-path = ['/Admin/x']\n[[rule]]\npaths = ['/admin/**']\nscope = ['a']",
            "without a token, --public-path '/Admin/x' opens part of it",
        ),
        (
            "optional-auth-path = ['/feed/**']\n[[rule]]\npaths = ['/Feed/**']\nscope = ['a']",
            "--optional-auth-path lists it",
        ),
        (
            "optional-auth-path = ['/*/x']\n[[rule]]\npaths = ['/admin/**']\nscope = ['a']",
            "without a token, --optional-auth-path '/*/x' opens part of it",
        ),
        (
            "optional-auth-path = ['/ADMIN/x']\n[[rule]]\npaths = ['/admin/**']\nscope = ['a']",
            "without a token, --optional-auth-path '/ADMIN/x' opens part of it",
        ),
        // The rule is for both: some services ignore a suffix.
        (
            "public-path = ['/a/b.json']\n[[rule]]\npaths = ['/a/b']\nscope = ['a']",
            "without a token, --public-path '/a/b.json' opens part of it",
        ),
        (
            "public-path = ['GET /a/*.tar.gz']\n[[rule]]\npaths = ['/A/?']\nscope = ['a']",
            "without a token, --public-path 'GET /a/*.tar.gz' opens part of it",
        ),
    ] {
        let end = check(config, &[]);
        let warned = |line: &str| line.starts_with("# warning: [[rule]]") && line.contains(warning);
        assert!(
            end.stdout.lines().any(warned),
            "{config}: {}{}",
            end.stdout,
            end.stderr
        );
        assert_eq!(check(config, &["--strict"]).code, Some(CONFIG), "{config}");
    }
    // What is written below a rule is an exception, and no surprise.
    for config in [
        "public-path = ['/health']\n[[rule]]\npaths = ['/**']\nscope = ['a']",
        "optional-auth-path = ['/admin/public/**']\n[[rule]]\npaths = ['/admin/**']\nscope = ['a']",
        "public-path = ['/admin/public/**']\n[[rule]]\npaths = ['/admin/**']\nscope = ['a']",
        "public-path = ['GET /*/x']\n[[rule]]\npaths = ['/a/*']\nmethods = ['PUT']\nscope = ['a']",
        "public-path = ['/a/b.json', '/ab.json', '/.a']\n[[rule]]\npaths = ['/a/**']\nscope = ['a']",
        "public-path = ['/a/*']\n[[rule]]\npaths = ['/b/**', '/a/*/c']\nscope = ['a']",
    ] {
        let end = check(config, &[]);
        assert_eq!(end.code, Some(0), "{config}: {}", end.stderr);
        let warned = end.stdout.contains("# warning: [[rule]]");
        assert!(!warned, "{config}: {}", end.stdout);
    }
}

/// Runs the token table behind a rule for every path: what was rejected stays rejected with its own
/// code, and what was accepted lacks the scope.
#[test]
fn no_row_of_the_token_table_passes_a_rule_that_it_lacks() {
    let reloading = Reloading::with("[[rule]]\npaths = ['/**']\nscope = ['none']\n");
    let stack = &reloading.stack;
    let mut verdicts = Verdicts::default();
    let rows = TokenTable::load().unwrap().token;
    let of_this_run = rows.iter().filter(|row| {
        row.is_tried_with(SigningType::Ecdsa)
            && row.policy == Policy::Default
            && row.keys == KeySetShape::Nameless
    });
    for row in of_this_run {
        let target = match &row.query {
            Some(query) => format!("/orders/list?{query}"),
            None => "/orders/list".to_owned(),
        };
        let response = within_one_second(|now| {
            let lines = row.header_lines(&stack.forge, "unnamed", now);
            let request = Request::new("GET", target.as_str());
            let request = lines.into_iter().fold(request, Request::line);
            exchange(stack.sidecar.address(), "GET", &request.bytes("a"))
        });
        let found = verdict(&response);
        let expected = match row.rejection() {
            None => "403 insufficient_scope",
            // The whole head has a limit of its own.
            Some((431, _)) => found.as_str(),
            Some(_) => row.expect.as_str(),
        };
        let difference = (found != expected || response.status() < 400)
            .then(|| format!("{found}, not {expected}"));
        verdicts.row(&row.name, difference);
    }
    assert!(verdicts.checked() >= 100, "the table has lost rows");
    assert_eq!(stack.service.requests().len(), 0);
    verdicts.conclude();
}

const TABLES: [&str; 2] = ["pass_list.toml", "canonical_paths.toml"];

/// The scope that every rule of the path tables needs.
const SCOPE: &str = "path";

/// The tables of the stack's auth server and of another issuer, whose key is in a file.
fn two_issuers(other: &Forge, home: &Path) -> String {
    let file = home.join("other.pem");
    std::fs::write(&file, other.trusted().served()).unwrap();
    format!(
        "[[issuer]]\nname = 'own'\nissuer = 'auth'\nauth-server = true\nuser-prefix = ''\n\
         [[issuer]]\nname = 'other'\nissuer = 'https://other/'\naudience = ['orders']\n\
         user-prefix = 'other:'\nalgorithms = ['ES256']\njwks = '{}'\n",
        file.display()
    )
}

/// Sends every row of the path tables to a sidecar of two issuers with a rule for the patterns in
/// place of a pass list: with a token of each without the scope, and with one that has it.
#[test]
fn no_disguise_of_a_path_steps_around_a_rule() {
    let mut verdicts = Verdicts::default();
    let groups = TABLES
        .iter()
        .flat_map(|file| tables::load::<PathTable>(file).group);
    let other = Forge::new(SigningType::Ecdsa);
    for group in groups.filter(|group| !group.patterns.is_empty()) {
        let config = format!(
            "[[rule]]\npaths = {:?}\nscope = ['{SCOPE}']\n",
            group.patterns
        );
        let home = tempfile::tempdir().unwrap();
        let config = config + &two_issuers(&other, home.path());
        let file = home.path().join("sidecar.toml");
        std::fs::write(&file, config).unwrap();
        let context = group.context.trim_start_matches('/');
        let stack = ForgedStack::with(SigningType::Ecdsa, |plan| {
            plan.app_name(context)
                .flags(["--config", file.to_str().unwrap()])
        });
        let tokens_of = |forge: &Forge, issuer: &str| {
            [json!({}), json!({"scope": SCOPE})].map(|mut claims| {
                claims["iss"] = issuer.into();
                claims["aud"] = "orders".into();
                forge.token(clock::now(), &claims)
            })
        };
        for (forge, issuer) in [(&stack.forge, "auth"), (&other, "https://other/")] {
            let tokens = tokens_of(forge, issuer);
            for row in &group.row {
                let name = format!("{} [{}, {issuer}] ({})", row.path, group.name, row.why);
                verdicts.row(&name, through_a_rule(&stack, &group, row, &tokens).err());
            }
        }
    }
    assert!(verdicts.checked() >= 280, "the tables have lost rows");
    verdicts.conclude();
}

fn through_a_rule(
    stack: &ForgedStack,
    group: &PathGroup,
    row: &PathRow,
    [without, with]: &[String; 2],
) -> Result<(), String> {
    let (lacking, having) = (send(stack, row, without), send(stack, row, with));
    if row.path.contains("/current/user/details") && row.expect == PathClass::Token {
        // The sidecar's own endpoint: the token is enough.
        return match (lacking.0.status(), lacking.1) {
            (200, 0) => Ok(()),
            _ => Err(format!("{}, not the user", verdict(&lacking.0))),
        };
    }
    if row.expect == PathClass::Rejected || row.rejected_by_parser {
        let rejected = [&lacking, &having]
            .iter()
            .all(|(response, seen)| response.status() == 400 && *seen == 0);
        return rejected.then_some(()).ok_or_else(|| verdict(&lacking.0));
    }
    if having.0.status() != 200 || having.1 != 1 {
        return Err(format!("with the scope {}", verdict(&having.0)));
    }
    let stopped = verdict(&lacking.0) == "403 insufficient_scope" && lacking.1 == 0;
    match must_be_stopped(group, row) {
        true if !stopped => Err(format!("without the scope {}", verdict(&lacking.0))),
        // More than has to be may be stopped, but not everything.
        _ if row.expect == PathClass::Pass && !stopped => Err("not stopped".to_owned()),
        _ => Ok(()),
    }
}

/// Returns true if any reading of the path matches the rule: the whole of its escapes decoded,
/// parameters, doubled slashes and what names end with removed, letters in one case.
fn must_be_stopped(group: &PathGroup, row: &PathRow) -> bool {
    let raw = template::fill(&row.path, |_| None);
    let raw = raw.split(|byte| *byte == b'?').next().unwrap_or_default();
    let canonical = RequestPath::parse(raw).is_ok_and(|path| path.canonical().is_some());
    let decoded: Vec<u8> = percent_decoded(&percent_decoded(raw));
    let text = String::from_utf8_lossy(&decoded).to_lowercase();
    let names = text
        .split('/')
        .map(|name| name.split(';').next().unwrap_or_default());
    let names: Vec<&str> = names
        .map(|name| name.trim_end_matches(['.', ' ']))
        .filter(|name| !name.is_empty())
        .collect();
    let read = format!("/{}", names.join("/"));
    let patterns: Vec<String> = group
        .patterns
        .iter()
        .map(|text| text.to_lowercase())
        .collect();
    let list = PassList::parse(patterns.iter().map(String::as_str)).unwrap();
    let below = read.strip_prefix(&group.context.to_lowercase());
    let below = below.filter(|path| path.is_empty() || path.starts_with('/'));
    let matches = below.is_some_and(|path| {
        let path = if path.is_empty() { "/" } else { path };
        list.matches(path) || list.matches(&format!("{path}/"))
    });
    matches || !canonical
}

fn percent_decoded(bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|_| *first == b'%') {
            Some(byte) => (rest, _) = (&tail[2..], decoded.push(byte)),
            None => (rest, _) = (tail, decoded.push(*first)),
        }
    }
    decoded
}

/// Returns the response, and the number of requests that the service received.
fn send(stack: &ForgedStack, row: &PathRow, token: &str) -> (Message, usize) {
    let request = Request::new("GET", template::fill(&row.path, |_| None))
        .line(format!("Authorization: Bearer {token}"));
    stack.service.take_requests();
    let bytes = request.bytes("service.example");
    let response = exchange(stack.sidecar.address(), "GET", &bytes);
    (response, stack.service.take_requests().len())
}
