//! Refresh tokens (RFC 6749 §6): sessions that a login begins, that each use renews, and that the use of
//! an older token, a logout or a change of the user ends; in both stores.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tests::applications::register_in;
use tests::auth_server::{AuthServer, AuthServerPlan, file_store};
use tests::clock;
use tests::echo_service::EchoService;
use tests::expect::has;
use tests::message::Message;
use tests::moved_clock::MovedClock;
use tests::python::Python;
use tests::redis_server::Redis;
use tests::sidecar::SidecarPlan;
use tests::small_disk::{self, SmallDisk};
use tests::tables::{self, TokenRequestTable, Verdicts};
use tests::token_forge::{jti_of, payload_of};
use tests::users_file::UsersFile;
use tests::{template, wait};

use super::grants::{found, token_request};
const TOKEN: &str = "/oauth/token";
const ENDED: &str = "400 invalid_grant grant_invalid";
const UNREADABLE: &str = "503 temporarily_unavailable store_unavailable";

fn plan() -> AuthServerPlan {
    AuthServerPlan::polling().flags(["--refresh-tokens", "on"])
}

/// An access token with its refresh token.
#[derive(Debug, Clone)]
struct Tokens {
    access: String,
    refresh: String,
}

impl Tokens {
    fn of(response: &Value) -> Self {
        let text = |name: &str| match response[name].as_str() {
            Some(text) => text.to_owned(),
            None => panic!("no {name}: {response}"),
        };
        Self {
            access: text("access_token"),
            refresh: text("refresh_token"),
        }
    }

    fn jti(&self) -> String {
        jti_of(&self.access)
    }

    /// Returns the name of the session in the store.
    fn session(&self) -> String {
        let id = URL_SAFE_NO_PAD.decode(self.jti()).unwrap();
        URL_SAFE_NO_PAD.encode(&id[..21])
    }
}

/// Logs Ada in, whom a server without a users file accepts as any user.
fn log_in(server: &AuthServer) -> Tokens {
    Tokens::of(&server.login_as("ada", "enchantress").json()["data"])
}

fn refresh(server: &AuthServer, token: &str) -> Message {
    let body = format!("grant_type=refresh_token&refresh_token={token}");
    server.anonymous().post_form(TOKEN, &body)
}

fn refreshed(server: &AuthServer, tokens: &Tokens) -> Tokens {
    Tokens::of(&refresh(server, &tokens.refresh).json())
}

fn assert_ended(server: &AuthServer, tokens: &Tokens) {
    assert_eq!(found(&refresh(server, &tokens.refresh)), ENDED);
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
fn contract_2_3_without_the_flag_there_is_no_refresh_token() {
    let server = AuthServer::start();
    let data = server.login_as("ada", "enchantress").json()["data"].clone();
    assert_eq!(data["refresh_token"], Value::Null);
    let jti = payload_of(data["access_token"].as_str().unwrap())["jti"].clone();
    assert_eq!(jti.as_str().map(str::len), Some(22));
    let rejected = refresh(&server, "postern_rt_x");
    let expected = "400 unsupported_grant_type grant_unsupported";
    assert_eq!(found(&rejected), expected);
    assert_eq!(event(&server, "begun"), None);
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
    let response = refresh(&server, &first.refresh);
    assert_eq!(response.header("cache-control"), ["no-store"]);
    assert_eq!(response.header("pragma"), ["no-cache"]);
    let body = response.json();
    let second = Tokens::of(&body);
    let rest = (&body["token_type"], &body["expires_in"], &body["scope"]);
    assert_eq!(rest, (&json!("Bearer"), &json!(300), &Value::Null));
    assert_ne!(first.refresh, second.refresh);
    assert_ne!(first.jti(), second.jti());
    assert_eq!(payload_of(&second.access)["sid"], first.session());
    assert_eq!(first.session(), second.session());
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
        assert_eq!(behind.bearing(&tokens.access).verdict("/list"), "200");
    }
    let output = server.process().output();
    drop(server);
    let server = start();
    let third = refreshed(&server, &second);
    assert_eq!(first.session(), third.session());
    // No token stands in a log or in the store.
    let output = output + &server.process().output();
    let files = ["store.db", "store.db-wal"].map(|file| std::fs::read(home.path().join(file)));
    let stored = files.map(|bytes| String::from_utf8_lossy(&bytes.unwrap()).into_owned());
    let stored = stored.concat();
    assert!(stored.contains(&first.session()));
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
    let (first, other) = (log_in(&server), log_in(&server));
    let second = refreshed(&server, &first);
    let again = refreshed(&server, &first);
    assert_eq!(again.refresh, second.refresh);
    let claims = |tokens: &Tokens| payload_of(&tokens.access);
    assert_eq!(claims(&again), claims(&second));
    let third = refreshed(&server, &second);
    assert_ended(&server, &first);
    assert_ended(&server, &third);
    for tokens in [&first, &second, &third] {
        behind.until_revoked(&tokens.access);
    }
    assert_eq!(behind.bearing(&other.access).verdict("/list"), "200");
    refreshed(&server, &other);
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
        let log_in = |account| {
            let response = server.login_as(account, "enchantress");
            Tokens::of(&response.json()["data"])
        };
        let (of_bob, first) = (log_in("bob"), log_in("ada"));
        let first = refreshed(&server, &first);
        // The sessions of one second are equally old.
        let second = clock::now();
        wait::until("the next second", || clock::now() > second);
        let second = log_in("ada");
        assert_eq!(server.log_out(&second.refresh).status(), 200);
        // One that was ended by a logout counts no more.
        let third = log_in("ada");
        let first = refreshed(&server, &first);
        let fourth = log_in("ada");
        until_all_revoked(&server, std::slice::from_ref(&first));
        assert_ended(&server, &first);
        for kept in [&third, &fourth, &of_bob] {
            refreshed(&server, kept);
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
    let mut all = vec![log_in(&server)];
    for _ in 0..40 {
        let next = refreshed(&server, &all[all.len() - 1]);
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
    let by_refresh_token = log_in(&server);
    let by_used_token = log_in(&server);
    let by_access_token = log_in(&server);
    let kept = log_in(&server);
    let mut ended = Vec::new();
    for (tokens, presented) in [
        (&by_refresh_token, &by_refresh_token.refresh),
        (&by_used_token, &by_used_token.refresh),
        (&by_access_token, &by_access_token.access),
    ] {
        let next = refreshed(&server, tokens);
        assert_eq!(server.log_out(presented).status(), 200);
        assert_ended(&server, &next);
        ended.extend([tokens.clone(), next]);
    }
    until_all_revoked(&server, &ended);
    refreshed(&server, &kept);
    let unknown = format!("postern_rt_{}", "A".repeat(64));
    assert_eq!(server.log_out(&unknown).status(), 200);
    wait::until("the lines of three logouts", || {
        server.until_logged("cause=logout") == 3
    });
}

#[test]
fn a_logout_with_an_expired_access_token_ends_the_session() {
    let server = plan().flags(["--token-lifetime", "1"]);
    let server = server.ready();
    let until_expired = |tokens: &Tokens| {
        wait::until("the access token to expire", || {
            server.verdict(&tokens.access) == "401 token_expired"
        });
    };
    let tokens = log_in(&server);
    until_expired(&tokens);
    let forged = format!("{}A", &tokens.access[..tokens.access.len() - 8]);
    assert_eq!(server.log_out(&forged).status(), 200);
    let tokens = refreshed(&server, &tokens);
    until_expired(&tokens);
    assert_eq!(server.log_out(&tokens.access).status(), 200);
    assert_ended(&server, &tokens);
}

#[test]
fn a_logout_ends_the_session_s_tokens_at_sidecars() {
    let server = plan().flags(["--token-lifetime", "1"]);
    let server = server.ready();
    let service = EchoService::start();
    let lenient = SidecarPlan::polling(&service, &server.url())
        .flags(["--leeway", "300"])
        .ready();
    let first = log_in(&server);
    wait::until("the token to be too old for the server", || {
        server.verdict(&first.access) == "401 token_expired"
    });
    let second = refreshed(&server, &first);
    assert_eq!(lenient.bearing(&first.access).verdict("/list"), "200");
    assert_eq!(server.log_out(&second.refresh).status(), 200);
    for tokens in [&first, &second] {
        lenient.until_revoked(&tokens.access);
    }
}

#[test]
fn a_command_ends_no_session_by_a_token_that_it_never_had() {
    let server = plan().ready();
    let tokens = log_in(&server);
    let bytes = URL_SAFE_NO_PAD.decode(tokens.jti()).unwrap();
    let forged = URL_SAFE_NO_PAD.encode([&bytes[..21], &[7; 12]].concat());
    let claims = URL_SAFE_NO_PAD.encode(json!({"jti": forged}).to_string());
    let unsigned = format!("eyJhbGciOiJub25lIn0.{claims}.c2lnbmF0dXJl");
    for named in [&forged, &unsigned] {
        server.done(&["revoke", "--jti", named]);
    }
    refreshed(&server, &tokens);
}

#[test]
fn a_command_ends_sessions_by_token_and_by_user() {
    let server = plan().ready();
    let (one, other) = (log_in(&server), log_in(&server));
    let next = refreshed(&server, &one);
    server.done(&["revoke", "--jti", &one.jti()]);
    assert_ended(&server, &next);
    until_all_revoked(&server, &[one, next]);
    let other = refreshed(&server, &other);
    let user = payload_of(&other.access)["sub"]
        .as_str()
        .unwrap()
        .to_owned();
    server.done(&["revoke", "--user", &user]);
    server.until_revoked(&other.access);
    assert_ended(&server, &other);
    server.until_logged("cause=revocation");
    wait::until("a session after the revocation", || {
        let tokens = log_in(&server);
        refresh(&server, &tokens.refresh).status() == 200
    });
}

/// An access token of later would not be revoked.
#[test]
fn a_revocation_of_the_user_counts_at_the_next_refresh() {
    let server = AuthServerPlan::new()
        .flags(["--refresh-tokens", "on"])
        .ready();
    let tokens = log_in(&server);
    let user = payload_of(&tokens.access)["sub"].clone();
    server.done(&["revoke", "--user", user.as_str().unwrap()]);
    assert_ended(&server, &tokens);
}

#[test]
fn a_logout_at_a_server_without_refresh_tokens_ends_the_session() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let [begins, ends] = ["on", "off"].map(|it| {
        let plan = AuthServerPlan::polling().store(redis.url());
        plan.flags(["--refresh-tokens", it]).ready()
    });
    let (one, other) = (log_in(&begins), log_in(&begins));
    assert_eq!(ends.verdict(&other.access), "200");
    for token in [&one.refresh, &other.access] {
        assert_eq!(ends.log_out(token).status(), 200);
    }
    for tokens in [&one, &other] {
        assert_ended(&begins, tokens);
        begins.until_revoked(&tokens.access);
    }
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
    let log_in = |account| {
        let response = server.login_as(account, "enchantress");
        Tokens::of(&response.json()["data"])
    };
    let [ada, bob, eve, sue] = ["ada", "bob", "eve", "sue"].map(log_in);
    for (words, account, input) in [
        ("disable", "ada", ""),
        ("remove", "bob", ""),
        ("set-password", "eve", "another enchantress"),
    ] {
        let flags: &[&str] = if input.is_empty() {
            &[]
        } else {
            &["--password-stdin"]
        };
        let end = users.command(words, account, flags, input);
        assert_eq!(end.code, Some(0), "{}", end.stderr);
    }
    server.until_logged("user_password_changed");
    for tokens in [&ada, &bob, &eve] {
        server.until_revoked(&tokens.access);
        assert_ended(&server, tokens);
        let account = payload_of(&tokens.access)["username"].clone();
        let line = format!("event=session_ended account={account} cause=revocation");
        server.until_logged(&line);
    }
    refreshed(&server, &sue);
}

#[test]
fn a_server_with_an_older_users_file_ends_no_session() {
    let Some(redis) = Redis::start() else { return };
    let [older, newer] = [UsersFile::new(), UsersFile::new()];
    for (users, password) in [(&older, "enchantress"), (&newer, "another one")] {
        users.add("ada", password, &[]);
    }
    newer.add("dora", "enchantress", &[]);
    let start = |users: &UsersFile| {
        let flags = ["--users", &users.location()];
        plan().store(redis.url()).flags(flags).ready()
    };
    let [behind, ahead] = [start(&older), start(&newer)];
    for (account, password) in [("dora", "enchantress"), ("ada", "another one")] {
        let tokens = Tokens::of(&ahead.login_as(account, password).json()["data"]);
        let rejected = refresh(&behind, &tokens.refresh);
        assert_eq!(rejected.status(), 503, "{}", rejected.text());
        assert_eq!(ahead.verdict(&tokens.access), "200");
        refreshed(&ahead, &tokens);
    }
}

#[test]
fn what_a_user_is_now_stands_in_the_next_token() {
    let users = ada_with_scope("orders:read");
    let flags = ["--users", &users.location()];
    let server = plan().flags(flags).ready();
    let tokens = log_in(&server);
    assert_eq!(payload_of(&tokens.access)["scope"], "orders:read");
    let text = std::fs::read_to_string(users.path()).unwrap();
    let text = text.replace("orders:read", "stock:read");
    std::fs::write(users.path(), text).unwrap();
    server.until_logged("user_details_changed");
    let next = refresh(&server, &tokens.refresh).json();
    assert_eq!(next["scope"], "stock:read");
    let claims = payload_of(next["access_token"].as_str().unwrap());
    assert_eq!(claims["scope"], "stock:read");
}

#[test]
fn a_session_is_over_after_its_lifetime_renewed_or_not() {
    let server = plan()
        .flags(["--refresh-token-lifetime", "3", "--token-lifetime", "1"])
        .ready();
    let mut tokens = log_in(&server);
    wait::until("the end of the session", || {
        let response = refresh(&server, &tokens.refresh);
        if response.status() == 200 {
            tokens = Tokens::of(&response.json());
            return None;
        }
        (found(&response) == ENDED).then_some(())
    });
    log_in(&server);
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
        let tokens = log_in(&server);
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
        let after = refresh(&server, &tokens.refresh).status();
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
    let tokens = log_in(&server);
    let body = format!(
        "grant_type=refresh_token&refresh_token={}&scope=orders%3Aread",
        tokens.refresh
    );
    let narrow = server.anonymous().post_form(TOKEN, &body).json();
    assert_eq!(narrow["scope"], "orders:read");
    let tokens = Tokens::of(&narrow);
    assert_eq!(payload_of(&tokens.access)["scope"], "orders:read");
    let wide = refresh(&server, &tokens.refresh).json();
    assert_eq!(wide["scope"], "orders:read orders:write");
}

#[test]
fn a_lost_redis_ends_sessions_and_lets_no_client_in() {
    let Some(redis) = Redis::start() else { return };
    let start = || plan().store(redis.url()).ready();
    let (one, other) = (start(), start());
    let tokens = log_in(&one);
    let tokens = refreshed(&other, &tokens);
    let key = format!("{{auth:user-token}}:session:{}", tokens.session());
    let record = redis.command(&["GET", &key]).unwrap();
    has(&record, "admin");
    let ttl: u32 = redis.command(&["TTL", &key]).unwrap().parse().unwrap();
    assert!((600_000..=604_800).contains(&ttl), "{ttl}");
    redis.command(&["FLUSHALL"]);
    assert_ended(&one, &tokens);
    let tokens = log_in(&other);
    refreshed(&one, &tokens);
}

#[test]
fn without_the_store_logins_go_on_and_refreshing_waits() {
    let Some(redis) = Redis::start() else { return };
    let address = redis.address();
    let server = plan().store(redis.url()).ready();
    let tokens = log_in(&server);
    // Stalled, and then gone.
    redis.signal("STOP");
    let data = server.login_as("ada", "enchantress").json()["data"].clone();
    assert_eq!(data["refresh_token"], Value::Null);
    assert!(data["access_token"].is_string());
    redis.signal("CONT");
    drop(redis);
    let response = refresh(&server, &tokens.refresh);
    assert_eq!(found(&response), UNREADABLE);
    assert_eq!(response.header("retry-after").len(), 1);
    for _ in 0..2 {
        let data = server.login_as("ada", "enchantress").json()["data"].clone();
        assert_eq!(data["refresh_token"], Value::Null);
        assert!(data["access_token"].is_string());
    }
    assert_eq!(server.log_out(&tokens.refresh).status(), 503);
    assert_eq!(event(&server, "not_stored"), Some(3));
    assert_eq!(server.until_logged("logins get no refresh token"), 1);
    let Some(_redis) = Redis::start_on(address) else {
        return;
    };
    let tokens = log_in(&server);
    refreshed(&server, &tokens);
    server.until_logged("logins get refresh tokens again");
}

#[test]
fn a_successful_logout_outlives_its_server() {
    let (home, redis) = (tempfile::tempdir().unwrap(), Redis::start());
    let on_redis = redis.as_ref().map(|redis| plan().store(redis.url()));
    let plans = [Some(plan().directory(home.path())), on_redis];
    for plan in plans.into_iter().flatten() {
        let start = || plan.clone().ready();
        for _ in 0..3 {
            let server = start();
            let (one, other) = (log_in(&server), log_in(&server));
            let next = refreshed(&server, &other);
            refreshed(&server, &next);
            assert_eq!(server.log_out(&one.refresh).status(), 200);
            assert_ended(&server, &other);
            // Drop kills it.
            drop(server);
            let server = start();
            for tokens in [&one, &other, &next] {
                assert_eq!(server.verdict(&tokens.access), "401 token_revoked");
                assert_ended(&server, tokens);
            }
        }
    }
}

#[test]
fn a_logout_on_a_full_disk_is_no_success() {
    let Some(disk) = SmallDisk::new() else { return };
    let holder = disk.mounted();
    let room = disk.seen_by(&holder);
    let start = || plan().on_disk(&disk, &holder).ready();
    let server = start();
    let tokens = log_in(&server);
    small_disk::fill(&room);
    for _ in 0..2 {
        for token in [&tokens.refresh, &tokens.access] {
            assert_eq!(server.log_out(token).status(), 503);
        }
    }
    small_disk::make_room(&room);
    wait::until("the store to take it", || {
        server.log_out(&tokens.refresh).status() == 200
    });
    drop(server);
    let server = start();
    assert_eq!(server.verdict(&tokens.access), "401 token_revoked");
    assert_ended(&server, &tokens);
}

#[test]
fn a_server_s_wrong_clock_decides_about_no_user() {
    let (Some(redis), Some(clock)) = (Redis::start(), MovedClock::new()) else {
        return;
    };
    for offset in [86_400, -300] {
        clock.set(offset);
        let users = UsersFile::with("ada", "enchantress");
        users.add("bob", "enchantress", &[]);
        let plan = || {
            let flags = ["--users", &users.location()];
            plan().store(redis.url()).flags(flags)
        };
        let right = plan().ready();
        let wrong = clock
            .environment()
            .iter()
            .fold(plan(), |plan, (name, value)| plan.environment(name, value));
        let wrong = wrong.ready();
        let of = |server: &AuthServer, account| server.token_of(account, "enchantress");
        let (ada, bob) = (of(&right, "ada"), of(&right, "bob"));
        for token in [&ada, &of(&wrong, "ada")] {
            assert_eq!(right.verdict(token), "200");
            assert_eq!(wrong.verdict(token), "200");
        }
        drop(right);
        let end = users.command("remove", "bob", &[], "");
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        let end = users.command("set-password", "ada", &["--password-stdin"], "another one");
        assert_eq!(end.code, Some(0), "{}", end.stderr);
        wrong.until_revoked(&ada);
        wrong.until_revoked(&bob);
        let right = plan().ready();
        wait::until("a login that counts", || {
            let ada = right.token_of("ada", "another one");
            right.verdict(&ada) == "200" && wrong.verdict(&ada) == "200"
        });
    }
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
        task[name] = json!(log_in(&server).refresh);
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
