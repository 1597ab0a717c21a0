//! The audit lines of the auth server: the client, its action, and no text of an attacker.

use std::fs;

use serde_json::{Value, json};
use tests::actors::applications::register_in;
use tests::actors::auth_server::{AuthServer, AuthServerPlan, LOGIN, file_store};
use tests::actors::client::Request;
use tests::actors::expect::has;
use tests::actors::token_forge::{header_of, payload_of};
use tests::actors::users_file::UsersFile;
use tests::wait;

/// Returns the fields of the first audit line of this event, once there is one.
fn event(server: &AuthServer, name: &str) -> Value {
    let line = server.process().json_line("event", name);
    assert_eq!(line["target"], "audit", "{line}");
    line
}

fn logging_json(users: &UsersFile) -> AuthServer {
    let flags = ["--users", &users.location(), "--log-format", "json"];
    AuthServerPlan::new().flags(flags).ready()
}

#[test]
fn a_login_is_joined_to_its_token_its_key_and_its_request() {
    let users = UsersFile::with("ada", "enchantress");
    let server = logging_json(&users);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let login = Request::new("POST", format!("/auth{LOGIN}"))
        .line("Content-Type: application/json")
        .line(format!("traceparent: 00-{trace}-00f067aa0ba902b7-01").as_str())
        .line("X-Request-Id: login-1")
        .body(json!({"username": "ada", "password": "enchantress"}).to_string());
    let response = server.anonymous().send(&login);
    let token = response.access_token();
    let (header, claims) = (header_of(&token), payload_of(&token));
    let line = event(&server, "login_succeeded");
    for (field, expected) in [
        ("account", &json!("ada")),
        ("jti", &claims["jti"]),
        ("kid", &header["kid"]),
        ("request_id", &json!("login-1")),
        ("trace_id", &json!(trace)),
    ] {
        assert_eq!(&line[field], expected, "{field}: {line}");
    }
}

#[test]
fn an_unknown_account_is_a_digest_of_its_own() {
    let users = UsersFile::with("ada", "enchantress");
    let server = logging_json(&users);
    for account in ["hush-1", "hush-2"] {
        assert_eq!(server.login_as(account, "x").status(), 401);
    }
    let accounts = wait::until("both lines", || {
        let mut lines = server.process().json_lines();
        lines.retain(|line| line["event"] == "login_failed");
        let accounts: Vec<_> = lines.iter().map(|it| it["account"].to_string()).collect();
        (accounts.len() == 2).then_some(accounts)
    });
    assert_ne!(accounts[0], accounts[1]);
    let are_digests = accounts
        .iter()
        .all(|account| account.starts_with("\"[unknown "));
    assert!(are_digests, "{accounts:?}");
    assert!(!server.process().stderr().contains("hush-"));
}

#[test]
fn each_change_of_the_users_file_names_its_user() {
    let users = UsersFile::with("ada", "enchantress");
    let server = logging_json(&users);
    let entry = fs::read_to_string(users.path()).unwrap();
    let other = entry.replace("\"ada\"", "\"bob\"");
    let other = other.replace("id = \"", "id = \"other");
    fs::write(users.path(), format!("{entry}disabled = true\n{other}")).unwrap();
    let summary = event(&server, "users_changed");
    let mut lines = server.process().json_lines();
    lines.retain(|line| line["event"] == "user_changed");
    let accounts: Vec<_> = lines.iter().map(|line| &line["account"]).collect();
    assert_eq!(accounts, ["ada", "bob"]);
    let found = (&summary["count"], &summary["changes"]);
    assert_eq!(found, (&json!(2), &json!(2)));
}

#[test]
fn the_start_and_the_end_of_a_server_are_events() {
    let users = UsersFile::with("ada", "enchantress");
    let server = logging_json(&users);
    let started = event(&server, "server_started");
    assert_eq!(started["listen"], server.address().to_string());
    server.process().terminate();
    assert_eq!(event(&server, "server_stopping")["cause"], "SIGTERM");
}

#[test]
fn contract_4_3_rule_3_an_unregistered_id_is_logged_no_secret() {
    let directory = tempfile::tempdir().unwrap();
    let secret = register_in(&file_store(directory.path()), "orders");
    let plan = AuthServerPlan::new().directory(directory.path());
    let server = plan.flags(["--log-format", "json"]).ready();
    let retrieve = |query: &str| {
        let path = format!("/client/user/secret/key?{query}");
        server.anonymous().status(&path)
    };
    for query in [
        "appId=never-registered&appSecret=x".to_owned(),
        format!("appId={secret}&appSecret=orders"),
        format!("appId=orders%26appSecret%3D{secret}&appSecret=x"),
    ] {
        retrieve(&query);
    }
    wait::until("the ids in the log", || {
        let log = server.process().stderr();
        let has = |id: &str| log.contains(&format!("\"app_id\":\"{id}\""));
        has("never-re…") && has("orders…")
    });
    assert!(!server.process().stderr().contains(&secret));
}

#[test]
fn no_password_or_token_sent_as_an_id_is_logged_whole() {
    let directory = tempfile::tempdir().unwrap();
    register_in(&file_store(directory.path()), "orders");
    let registered = AuthServerPlan::new().directory(directory.path());
    // Without an application no id is right either, but for the key.
    for (server, is_open) in [(registered.ready(), false), (AuthServer::start(), true)] {
        let token = format!("postern_rt_{}", "A".repeat(64));
        let login = server.login();
        let sent = [
            "hunter2-hunter2",
            "MYPASSWORD2",
            "correct horse",
            &token,
            &login,
        ];
        for sent in sent {
            let id = sent.replace(' ', "+");
            assert_eq!(server.grant(&id, "x", "").status(), 401);
            if !is_open {
                let path = format!("/client/user/secret/key?appId={id}&appSecret=x");
                assert_eq!(server.anonymous().status(&path), 401);
            }
            let log = wait::until("the line", || {
                let log = server.process().stderr();
                let start: String = sent.chars().take(5).collect();
                log.contains(&format!("app_id=\"{start}")).then_some(log)
            });
            assert!(!log.contains(sent), "{log}");
        }
    }
}

#[test]
fn no_account_name_adds_a_field_to_a_text_line() {
    let account = "bob client=6.6.6.6 outcome=ok";
    let users = UsersFile::with(account, "enchantress");
    let server = AuthServerPlan::new()
        .flags(["--users", &users.location()])
        .ready();
    server.login_as(account, "enchantress");
    server.anonymous().get(
        "/client/user/secret/key?appId=%1B%5B31m%20outcome%3Dok%20client%3D6.6.6.6&appSecret=x",
    );
    let log = wait::until("both lines", || {
        let log = server.process().stderr();
        let both = log.contains("login_succeeded") && log.contains("key_retrieved");
        both.then_some(log)
    });
    has(&log, r#"account="bob client=6.6.6.6 outcome=ok""#);
    for line in log.lines().filter(|line| line.contains("6.6.6.6")) {
        // Outside of the quotes there are no bytes of the client.
        let outside: String = line.split('"').step_by(2).collect();
        assert!(!outside.contains("6.6.6.6"), "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
    }
}
