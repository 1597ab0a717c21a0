//! Refresh tokens (RFC 6749 §6): sessions that a login begins, that each use renews, and that the use of
//! an older token, a logout or a change of the user ends; in both stores.

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
    let service = EchoService::start();
    let behind = SidecarPlan::polling(&service, &server.url()).ready();
    for tokens in [&first, &second] {
        assert_eq!(behind.verdict_of(&tokens.access), "200");
    }
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
    let service = EchoService::start();
    let behind = SidecarPlan::polling(&service, &server.url()).ready();
    let (first, other) = (server.session_of("ada"), server.session_of("ada"));
    let second = server.refreshed(&first);
    let again = server.refreshed(&first);
    assert_eq!(again.refresh, second.refresh);
    let claims = |tokens: &Tokens| payload_of(&tokens.access);
    assert_eq!(claims(&again), claims(&second));
    let third = server.refreshed(&second);
    assert_ended(&server, &first);
    assert_ended(&server, &third);
    for tokens in [&first, &second, &third] {
        behind.until_revoked(&tokens.access);
    }
    assert_eq!(behind.verdict_of(&other.access), "200");
    server.refreshed(&other);
    assert_eq!(event(&server, "begun"), Some(2));
    assert_eq!(event(&server, "reused"), Some(1));
    let line = "event=session_ended account=\"admin\" cause=reuse";
    assert_eq!(server.until_logged(line), 1);
    let issued = "postern_auth_server_tokens_issued_total{grant=\"refresh_token\",outcome=";
    for (outcome, count) in [("ok", 4), ("grant_invalid", 2)] {
        let name = format!("{issued}\"{outcome}\"}}");
        assert_eq!(server.metric(&name), Some(count), "{outcome}");
    }
}

#[test]
fn beyond_the_limit_a_login_ends_the_oldest_session_of_its_user() {
    let users = UsersFile::with("ada", "enchantress");
    users.add("bob", "enchantress", &[]);
    let flags = ["--users", &users.location(), "--sessions-per-user", "2"];
    let redis = Redis::start();
    let plans = [None, redis.as_ref()].map(|redis| match redis {
        Some(redis) => plan().store(redis.url()),
        None => plan(),
    });
    for plan in plans {
        let server = plan.flags(flags).ready();
        let log_in = |account| server.session_of(account);
        let (of_bob, first) = (log_in("bob"), log_in("ada"));
        let first = server.refreshed(&first);
        // The sessions of one second are equally old.
        let second = clock::now();
        wait::until("the next second", || clock::now() > second);
        let second = log_in("ada");
        assert_eq!(server.log_out(&second.refresh).status(), 200);
        // One that was ended by a logout counts no more.
        let third = log_in("ada");
        let first = server.refreshed(&first);
        let fourth = log_in("ada");
        until_all_revoked(&server, std::slice::from_ref(&first));
        assert_ended(&server, &first);
        for kept in [&third, &fourth, &of_bob] {
            server.refreshed(kept);
        }
        let line = "event=session_ended account=\"ada\" cause=limit";
        assert_eq!(server.until_logged(line), 1);
    }
}

/// Waits until the server rejects these access tokens as revoked.
fn until_all_revoked(server: &AuthServer, all: &[Tokens]) {
    for tokens in all {
        server.until_revoked(&tokens.access);
    }
}

#[test]
fn the_tokens_of_many_renewals_end_with_the_session() {
    let server = plan().ready();
    let mut all = vec![server.session_of("ada")];
    for _ in 0..40 {
        let next = server.refreshed(&all[all.len() - 1]);
        all.push(next);
    }
    assert_ended(&server, &all[0]);
    until_all_revoked(&server, &all);
    let entries = "postern_auth_server_revocations{kind=\"token\"}";
    assert_eq!(server.metric(entries), Some(1));
}

#[test]
fn a_logout_with_either_token_ends_the_session() {
    let server = plan().ready();
    let by_refresh_token = server.session_of("ada");
    let by_used_token = server.session_of("ada");
    let by_access_token = server.session_of("ada");
    let kept = server.session_of("ada");
    let mut ended = Vec::new();
    for (tokens, presented) in [
        (&by_refresh_token, &by_refresh_token.refresh),
        (&by_used_token, &by_used_token.refresh),
        (&by_access_token, &by_access_token.access),
    ] {
        let next = server.refreshed(tokens);
        assert_eq!(server.log_out(presented).status(), 200);
        assert_ended(&server, &next);
        ended.extend([tokens.clone(), next]);
    }
    until_all_revoked(&server, &ended);
    server.refreshed(&kept);
    let unknown = format!("postern_rt_{}", "A".repeat(64));
    assert_eq!(server.log_out(&unknown).status(), 200);
    wait::until("the lines of three logouts", || {
        server.until_logged("cause=logout") == 3
    });
}

/// With an access token that has expired at the server, not at a sidecar with more leeway.
#[test]
fn a_logout_ends_the_session_s_tokens_at_sidecars() {
    let server = plan().flags(["--token-lifetime", "1"]).ready();
    let service = EchoService::start();
    let lenient = SidecarPlan::polling(&service, &server.url())
        .flags(["--leeway", "300"])
        .ready();
    let until_expired = |tokens: &Tokens| {
        wait::until("the access token to expire", || {
            server.verdict(&tokens.access) == "401 token_expired"
        });
    };
    let first = server.session_of("ada");
    until_expired(&first);
    let forged = format!("{}A", &first.access[..first.access.len() - 8]);
    assert_eq!(server.log_out(&forged).status(), 200);
    let second = server.refreshed(&first);
    until_expired(&second);
    assert_eq!(lenient.verdict_of(&first.access), "200");
    assert_eq!(server.log_out(&second.access).status(), 200);
    assert_ended(&server, &second);
    for tokens in [&first, &second] {
        lenient.until_revoked(&tokens.access);
    }
}

#[test]
fn a_command_ends_no_session_by_a_token_that_it_never_had() {
    let server = plan().ready();
    let tokens = server.session_of("ada");
    let bytes = URL_SAFE_NO_PAD.decode(tokens.jti()).unwrap();
    let forged = URL_SAFE_NO_PAD.encode([&bytes[..21], &[7; 12]].concat());
    let claims = URL_SAFE_NO_PAD.encode(json!({"jti": forged}).to_string());
    let unsigned = format!("eyJhbGciOiJub25lIn0.{claims}.c2lnbmF0dXJl");
    for named in [&forged, &unsigned] {
        server.done(&["revoke", "--jti", named]);
    }
    server.refreshed(&tokens);
}

#[test]
fn a_command_ends_sessions_by_token_and_by_user() {
    let server = plan().ready();
    let (one, other) = (server.session_of("ada"), server.session_of("ada"));
    let next = server.refreshed(&one);
    server.done(&["revoke", "--jti", &one.jti()]);
    assert_ended(&server, &next);
    until_all_revoked(&server, &[one, next]);
    let other = server.refreshed(&other);
    let user = payload_of(&other.access)["sub"].clone();
    server.done(&["revoke", "--user", user.as_str().unwrap()]);
    server.until_revoked(&other.access);
    assert_ended(&server, &other);
    server.until_logged("cause=revocation");
    wait::until("a session after the revocation", || {
        let tokens = server.session_of("ada");
        server.refresh(&tokens.refresh).status() == 200
    });
}

/// An access token of later would not be revoked.
#[test]
fn a_revocation_of_the_user_counts_at_the_next_refresh() {
    let server = AuthServerPlan::new()
        .flags(["--refresh-tokens", "on"])
        .ready();
    let tokens = server.session_of("ada");
    let user = payload_of(&tokens.access)["sub"].clone();
    server.done(&["revoke", "--user", user.as_str().unwrap()]);
    assert_ended(&server, &tokens);
}

#[test]
fn a_session_ends_with_its_user_and_with_the_password() {
    let users = UsersFile::new();
    for account in ["ada", "bob", "eve", "sue"] {
        users.add(account, "enchantress", &[]);
    }
    let server = plan()
        .flags(["--users", &users.location(), "--access-log", "all"])
        .ready();
    let [ada, bob, eve, sue] =
        ["ada", "bob", "eve", "sue"].map(|account| server.session_of(account));
    let service = EchoService::start();
    let behind = SidecarPlan::polling(&service, &server.url()).ready();
    assert_eq!(behind.verdict_of(&ada.access), "200");
    users.done("disable", "ada", "");
    users.done("remove", "bob", "");
    users.done("set-password", "eve", "another enchantress");
    server.until_logged("event=user_changed account=\"eve\"");
    for tokens in [&ada, &bob, &eve] {
        server.until_revoked(&tokens.access);
        behind.until_revoked(&tokens.access);
        assert_ended(&server, tokens);
        let account = payload_of(&tokens.access)["username"].clone();
        let line = format!("event=session_ended account={account} cause=revocation");
        server.until_logged(&line);
    }
    assert_eq!(behind.verdict_of(&sue.access), "200");
    server.refreshed(&sue);
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
fn a_session_is_over_after_its_lifetime_renewed_or_not() {
    let server = plan()
        .flags(["--refresh-token-lifetime", "3", "--token-lifetime", "1"])
        .ready();
    let mut tokens = server.session_of("ada");
    wait::until("the end of the session", || {
        let response = server.refresh(&tokens.refresh);
        if response.status() == 200 {
            tokens = Tokens::of(&response.json());
            return None;
        }
        (found(&response) == ENDED).then_some(())
    });
    server.session_of("ada");
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
