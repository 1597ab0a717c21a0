//! Refresh tokens (RFC 6749 §6): sessions that a login begins, that each use renews, and that the use of
//! an older token, a logout or a change of the user ends; in both stores.

mod ends;
mod stores;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tests::actors::applications::register_in;
use tests::actors::auth_server::{AuthServer, AuthServerPlan, file_store};
use tests::actors::sessions::{TOKEN, Tokens};
use tests::actors::sidecar::SidecarPlan;
use tests::actors::token_forge::payload_of;
use tests::actors::users_file::UsersFile;
use tests::services::echo_service::EchoService;
use tests::services::python::Python;
use tests::services::redis_server::Redis;
use tests::tables::template;
use tests::tables::{self, TokenRequestTable, Verdicts};
use tests::wait;
use tests::wire::clock;

use super::grants::{found, token_request};

const ENDED: &str = "400 invalid_grant grant_invalid";
fn plan() -> AuthServerPlan {
    AuthServerPlan::polling().flags(["--refresh-tokens", "on"])
}

/// Returns the name of a session in the store.
fn name_of(session: &Tokens) -> String {
    let id = URL_SAFE_NO_PAD.decode(session.jti()).unwrap();
    URL_SAFE_NO_PAD.encode(&id[..21])
}

fn assert_ended(server: &AuthServer, tokens: &Tokens) {
    assert_eq!(found(&server.refresh(&tokens.refresh)), ENDED);
}

fn event(server: &AuthServer, event: &str) -> Option<u64> {
    let name = format!("postern_auth_server_sessions_total{{event=\"{event}\"}}");
    server.metric(&name)
}

fn ada_with_scope(scope: &str) -> UsersFile {
    let users = UsersFile::with("ada", "enchantress");
    let text = std::fs::read_to_string(users.path()).unwrap();
    std::fs::write(users.path(), format!("{text}scope = {scope:?}\n")).unwrap();
    users
}

#[test]
fn rfc_8707_a_resource_lies_within_the_audience_of_the_token() {
    const MCP: &str = "https://api.example/mcp";
    const OTHER: &str = "https://api.example/other";
    const OWN: &str = "https://own.example";
    let users = UsersFile::with("ada", "enchantress");
    users.add("bob", "enchantress", &[]);
    let text = std::fs::read_to_string(users.path()).unwrap();
    std::fs::write(users.path(), format!("{text}audience = [{OWN:?}]\n")).unwrap();
    let server = plan()
        .flags(["--users", &users.location()])
        .flags([
            "--audience",
            MCP,
            "--audience",
            OTHER,
            "--audience",
            "orders",
        ])
        .ready();
    for (account, resources, expected) in [
        ("ada", &[][..], Ok(&[MCP, OTHER, "orders"][..])),
        ("ada", &[MCP], Ok(&[MCP])),
        ("ada", &[OTHER, MCP], Ok(&[OTHER, MCP])),
        ("ada", &[OWN], Err(())),
        ("ada", &[MCP, OWN], Err(())),
        ("ada", &["orders"], Err(())),
        ("bob", &[], Ok(&[OWN])),
        ("bob", &[OWN], Ok(&[OWN])),
        // His own audience takes the place of the server's.
        ("bob", &[MCP], Err(())),
    ] {
        let tokens = server.session_of(account);
        let encoded = |text: &&str| text.replace(':', "%3A").replace('/', "%2F");
        let resource = |text: &&str| format!("&resource={}", encoded(text));
        let resources: String = resources.iter().map(resource).collect();
        let response = server.refresh(&format!("{}{resources}", tokens.refresh));
        match expected {
            Ok(audience) => {
                let aud = payload_of(&response.access_token())["aud"].clone();
                assert_eq!(aud, json!(audience), "{account} {resources}");
            }
            Err(()) => {
                let expected = "400 invalid_target resource_not_granted";
                assert_eq!(found(&response), expected, "{account} {resources}");
            }
        }
    }
}

#[test]
fn contract_2_3_without_the_flag_there_is_no_refresh_token() {
    let server = AuthServer::start();
    let data = server.login_as("ada", "enchantress").json()["data"].clone();
    assert_eq!(data["refresh_token"], Value::Null);
    let jti = payload_of(data["access_token"].as_str().unwrap())["jti"].clone();
    assert_eq!(jti.as_str().map(str::len), Some(22));
    let rejected = server.refresh("postern_rt_x");
    let expected = "400 unsupported_grant_type grant_unsupported";
    assert_eq!(found(&rejected), expected);
    assert_eq!(event(&server, "begun"), Some(0));
}

#[test]
fn a_session_goes_on_with_new_tokens_and_over_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let start = || {
        let plan = plan().directory(home.path());
        plan.flags(["--token-lifetime", "300"]).ready()
    };
    let server = start();
    let data = server.login_as("ada", "enchantress").json()["data"].clone();
    let found = (&data["token_type"], &data["expires_in"]);
    assert_eq!(found, (&json!("Bearer"), &json!(300)));
    let first = Tokens::of(&data);
    let response = server.refresh(&first.refresh);
    assert_eq!(response.header("cache-control"), ["no-store"]);
    assert_eq!(response.header("pragma"), ["no-cache"]);
    let body = response.json();
    let second = Tokens::of(&body);
    let rest = (&body["token_type"], &body["expires_in"], &body["scope"]);
    assert_eq!(rest, (&json!("Bearer"), &json!(300), &Value::Null));
    assert_ne!(first.refresh, second.refresh);
    assert_ne!(first.jti(), second.jti());
    assert_eq!(payload_of(&second.access)["sid"], name_of(&first));
    assert_eq!(name_of(&first), name_of(&second));
    let claims = |tokens: &Tokens| {
        let mut claims = payload_of(&tokens.access);
        for name in ["iat", "nbf", "exp", "jti"] {
            claims[name] = Value::Null;
        }
        claims
    };
    assert_eq!(claims(&first), claims(&second));
    let output = server.process().output();
    drop(server);
    let server = start();
    let third = server.refreshed(&second);
    assert_eq!(name_of(&first), name_of(&third));
    // No token stands in a log or in the store.
    let output = output + &server.process().output();
    let files = ["store.db", "store.db-wal"].map(|file| std::fs::read(home.path().join(file)));
    let stored = files.map(|bytes| String::from_utf8_lossy(&bytes.unwrap()).into_owned());
    let stored = stored.concat();
    assert!(stored.contains(&name_of(&first)));
    for tokens in [&first, &second, &third] {
        assert!(!output.contains(&tokens.refresh[40..]), "{output}");
        assert!(!stored.contains(&tokens.refresh[40..]), "in clear");
    }
}

#[test]
fn a_repeated_use_gives_the_same_pair_and_an_older_one_ends_it() {
    let server = plan().ready();
    let first = server.session_of("ada");
    let second = server.refreshed(&first);
    let again = server.refreshed(&first);
    assert_eq!(again.refresh, second.refresh);
    let claims = |tokens: &Tokens| payload_of(&tokens.access);
    assert_eq!(claims(&again), claims(&second));
    let third = server.refreshed(&second);
    assert_ended(&server, &first);
    assert_ended(&server, &third);
    server.until_revoked(&third.access);
    assert_eq!(event(&server, "begun"), Some(1));
    assert_eq!(event(&server, "reused"), Some(1));
    let line = "event=session_ended account=\"admin\" cause=reuse";
    assert_eq!(server.until_logged(line), 1);
    let issued = "postern_auth_server_tokens_issued_total{grant=\"refresh_token\",outcome=";
    for (outcome, count) in [("ok", 3), ("grant_invalid", 2)] {
        let name = format!("{issued}\"{outcome}\"}}");
        assert_eq!(server.metric(&name), Some(count), "{outcome}");
    }
}

#[test]
fn what_a_user_is_now_stands_in_the_next_token() {
    let users = ada_with_scope("orders:read");
    let flags = ["--users", &users.location()];
    let server = plan().flags(flags).ready();
    let tokens = server.session_of("ada");
    assert_eq!(payload_of(&tokens.access)["scope"], "orders:read");
    let text = std::fs::read_to_string(users.path()).unwrap();
    let text = text.replace("orders:read", "stock:read");
    std::fs::write(users.path(), text).unwrap();
    server.until_logged("event=user_changed");
    let next = server.refresh(&tokens.refresh).json();
    assert_eq!(next["scope"], "stock:read");
    let claims = payload_of(next["access_token"].as_str().unwrap());
    assert_eq!(claims["scope"], "stock:read");
}

#[test]
fn every_row_of_the_refresh_requests_gets_its_response() {
    let users = ada_with_scope("orders:read orders:write");
    let store = tempfile::tempdir().unwrap();
    let secret = register_in(&file_store(store.path()), "jobs");
    let server = plan()
        .directory(store.path())
        .flags(["--users", &users.location(), "--login-rate-limit", "0"])
        .ready();
    let mut verdicts = Verdicts::default();
    for row in tables::load::<TokenRequestTable>("refresh_requests.toml").request {
        let tokens = server.session_of("ada");
        let fill = |text: &str| {
            template::fill(text, |name| {
                let value = match name {
                    "token" => tokens.refresh.clone(),
                    "access" => tokens.access.clone(),
                    "secret" => secret.clone(),
                    "basic" => STANDARD.encode(format!("jobs:{secret}")),
                    _ => return None,
                };
                Some(value.into_bytes())
            })
        };
        let found = found(&server.anonymous().send(&token_request(&row, fill)));
        // A rejection for the form of the request leaves the token as it is.
        let after = server.refresh(&tokens.refresh).status();
        let difference = (found != row.expect || after != 200)
            .then(|| format!("{found}, not {} ({}); then {after}", row.expect, row.why));
        verdicts.row(&row.name, difference);
    }
    assert!(verdicts.checked() >= 15, "the table has lost rows");
    verdicts.conclude();
}

#[test]
fn a_narrower_scope_is_for_one_token() {
    let users = ada_with_scope("orders:read orders:write");
    let server = plan().flags(["--users", &users.location()]).ready();
    let tokens = server.session_of("ada");
    let narrower = format!("{}&scope=orders%3Aread", tokens.refresh);
    let narrow = server.refresh(&narrower).json();
    assert_eq!(narrow["scope"], "orders:read");
    let tokens = Tokens::of(&narrow);
    assert_eq!(payload_of(&tokens.access)["scope"], "orders:read");
    let wide = server.refresh(&tokens.refresh).json();
    assert_eq!(wide["scope"], "orders:read orders:write");
}

#[test]
fn others_clients_refresh_and_understand_the_end() {
    let Some(python) = Python::with_oauth() else {
        return;
    };
    let server = plan().flags(["--token-lifetime", "300"]).ready();
    let names = ["authlib", "requests-oauthlib"];
    let mut task = json!({"endpoint": format!("{}{TOKEN}", server.url())});
    for name in names {
        task[name] = json!(server.session_of("ada").refresh);
    }
    let result = python.run("refresh_clients.py", &task);
    for name in names {
        let result = &result[name];
        assert_eq!(result["expires_in"], 300, "{name}");
        assert_eq!(result["error"], "invalid_grant", "{name}");
        for token in result["tokens"].as_array().unwrap() {
            let claims = payload_of(token.as_str().unwrap());
            assert_eq!(claims["username"], "admin", "{name}");
        }
    }
}
