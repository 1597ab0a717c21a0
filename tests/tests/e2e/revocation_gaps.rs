//! Revocations that would miss a token, or end too many: lifetimes and clocks that differ, ids that
//! no token has, users and applications that leave.

use std::fmt::Write;

use serde_json::{Value, json};
use tests::auth_server::{AuthServer, AuthServerPlan, LOGIN, USER_DETAILS, file_store};
use tests::client::verdict;
use tests::clock;
use tests::echo_service::EchoService;
use tests::message::Message;
use tests::process::{CommandLine, Finished};
use tests::programs::Program;
use tests::redis_server::RedisServer;
use tests::sidecar::{EVERY_SECOND, Sidecar, SidecarPlan};
use tests::token_forge::payload_of;
use tests::users_file::UsersFile;
use tests::wait;

use super::key_refresh::ECDSA;

const REVOKED: &str = "401 token_revoked";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
const PASSWORD: &str = "enchantress";

fn plan() -> AuthServerPlan {
    AuthServerPlan::new()
        .flags(ECDSA)
        .flags(["--store-poll-interval", "1"])
}

fn sidecar(service: &EchoService, server: &AuthServer, flags: &[&str]) -> Sidecar {
    SidecarPlan::new(service, &server.url())
        .flags(ECDSA)
        .flags(EVERY_SECOND)
        .flags(flags.iter().copied())
        .start()
        .ready()
}

/// Runs a command on the server's store.
fn command(server: &AuthServer, words: &[&str]) -> Finished {
    CommandLine::new(Program::AuthServer.path())
        .arguments(words)
        .arguments(["--store", &file_store(&server.home().join("data"))])
        .run()
}

/// Runs a command on the server's store that has to succeed.
fn done(server: &AuthServer, words: &[&str]) -> Finished {
    let end = command(server, words);
    assert_eq!(end.code, Some(0), "{words:?}: {}", end.stderr);
    end
}

fn log_out(server: &AuthServer, token: &str) -> Message {
    let client = server.anonymous();
    let request = client
        .request("POST", "/oauth/revoke")
        .line(FORM)
        .body(format!("token={token}"));
    client.send(&request)
}

fn login(server: &AuthServer, account: &str) -> String {
    let credentials = json!({"username": account, "password": PASSWORD});
    let response = server.anonymous().post(LOGIN, &credentials);
    response.json()["data"]["access_token"]
        .as_str()
        .unwrap_or_else(|| panic!("no token: {}", response.text()))
        .to_owned()
}

fn details(server: &AuthServer, token: &str) -> String {
    verdict(&server.anonymous().bearing(token).get(USER_DETAILS))
}

fn until_known(server: &AuthServer, token: &str) {
    wait::until("the server to know of the revocation", || {
        (details(server, token) == REVOKED).then_some(())
    });
}

/// Returns the revocations in the server's store.
fn stored(server: &AuthServer) -> Value {
    let ring = std::fs::read_to_string(server.home().join("data/user-token.ring"));
    let ring: Value = serde_json::from_str(&ring.unwrap_or_default()).unwrap_or_default();
    ring["revocations"].clone()
}

#[test]
fn a_revocation_lasts_as_long_as_the_servers_tokens() {
    const LIFETIME: i64 = 100_000;
    let lifetime = LIFETIME.to_string();
    let server = plan()
        .flags(["--token-lifetime", &lifetime])
        .start()
        .ready();
    let token = server.login();
    let jti = payload_of(&token)["jti"].as_str().unwrap().to_owned();
    let now = clock::now();
    done(&server, &["revoke", "--user", "7"]);
    done(&server, &["revoke", "--app", "jobs"]);
    done(&server, &["revoke", "--jti", &jti]);
    until_known(&server, &token);
    let entries = wait::until("entries that outlive the tokens", || {
        let stored = stored(&server);
        let entries = [
            &stored["users"]["7"],
            &stored["applications"]["jobs"],
            &stored["tokens"][&jti],
        ];
        let outlive = |entry: &&Value| entry["until"].as_i64() >= Some(now + LIFETIME + 600);
        entries.iter().all(outlive).then(|| stored.clone())
    });
    // And is not raised again with each poll of the store.
    for _ in 0..3 {
        let token = server.login();
        assert_eq!(log_out(&server, &token).status(), 200);
    }
    assert_eq!(stored(&server)["users"], entries["users"]);
}

#[test]
fn a_logout_ends_a_token_that_only_sidecars_still_accept() {
    let server = plan()
        .flags(["--token-lifetime", "1", "--leeway", "0"])
        .start()
        .ready();
    let service = EchoService::start();
    let lenient = sidecar(&service, &server, &["--leeway", "300"]);
    let token = server.login();
    wait::until("the token to be too old for the server", || {
        (details(&server, &token) == "401 token_expired").then_some(())
    });
    let bearer = lenient.bearing(&token);
    assert_eq!(verdict(&bearer.get("/list")), "200");
    assert_eq!(log_out(&server, &token).status(), 200);
    wait::until("the sidecar to reject the token", || {
        (verdict(&bearer.get("/list")) == REVOKED).then_some(())
    });
}

/// Appends users who cannot log in.
fn add_disabled(users: &UsersFile, count: usize) {
    let mut text = std::fs::read_to_string(users.path()).unwrap();
    let hash = text.lines().find(|line| line.starts_with("password"));
    let hash = hash.unwrap().to_owned();
    for number in 0..count {
        write!(
            text,
            "\n[[user]]\naccount = \"gone{number}\"\nid = \"gone{number}\"\ndisabled = true\n{hash}\n"
        )
        .unwrap();
    }
    std::fs::write(users.path(), text).unwrap();
}

#[test]
fn many_disabled_users_revoke_no_other_token_at_a_start() {
    let users = UsersFile::with("ada", PASSWORD);
    add_disabled(&users, 26_000);
    let home = tempfile::tempdir().unwrap();
    let start = || {
        let plan = plan().directory(home.path());
        plan.flags(["--users", &users.location()]).start().ready()
    };
    let token = {
        let server = start();
        wait::until("the revocations of the start", || {
            server
                .process()
                .output()
                .contains("16000 of 26000 disabled users")
                .then_some(())
        });
        login(&server, "ada")
    };
    let server = start();
    let marker = login(&server, "ada");
    assert_eq!(log_out(&server, &marker).status(), 200);
    let output = server.process().output();
    assert!(!output.contains("everyone_revoked"), "everyone is out");
    assert_eq!(details(&server, &token), "200");
}

#[test]
fn a_file_of_disabled_users_is_revoked_once() {
    let users = UsersFile::with("ada", PASSWORD);
    add_disabled(&users, 3);
    let home = tempfile::tempdir().unwrap();
    let start = || {
        let plan = plan().directory(home.path());
        plan.flags(["--users", &users.location(), "--log-level", "debug"])
            .start()
            .ready()
    };
    let lines = |server: &AuthServer| server.process().output().matches("user_revoked").count();
    let first = start();
    wait::until("the revocations of the start", || {
        (lines(&first) == 3).then_some(())
    });
    until_recorded(&first, 1);
    drop(first);
    let second = start();
    let marker = login(&second, "ada");
    assert_eq!(log_out(&second, &marker).status(), 200);
    assert_eq!(lines(&second), 0, "they are revoked already");
    drop(second);
    assert_eq!(users.command("disable", "ada", &[], "").code, Some(0));
    let third = start();
    wait::until("the revocation after the change", || {
        (lines(&third) == 1).then_some(())
    });
}

#[test]
fn a_user_who_is_removed_while_no_server_runs_is_out() {
    let redis = RedisServer::start();
    for redis in [None, redis.as_ref()] {
        let users = UsersFile::new();
        for account in ["ada", "bob", "eve", "sue"] {
            users.add(account, PASSWORD, &[]);
        }
        let home = tempfile::tempdir().unwrap();
        let start = || {
            let plan = match redis {
                Some(redis) => plan().store(redis.url()),
                None => plan().directory(home.path()),
            };
            let flags = ["--users", &users.location(), "--log-level", "debug"];
            plan.flags(flags).start().ready()
        };
        let server = start();
        until_recorded(&server, 1);
        let [ada, bob, eve, sue] = ["ada", "bob", "eve", "sue"].map(|it| login(&server, it));
        // A change while it runs is recorded as well.
        assert_eq!(users.command("disable", "sue", &[], "").code, Some(0));
        until_known(&server, &sue);
        until_recorded(&server, 2);
        assert_eq!(users.command("enable", "sue", &[], "").code, Some(0));
        until_recorded(&server, 3);
        drop(server);
        let stdin = ["--password-stdin"];
        for (words, account, flags, input) in [
            ("remove", "ada", &[][..], ""),
            ("set-password", "bob", &stdin, "another enchantress"),
        ] {
            let end = users.command(words, account, flags, input);
            assert_eq!(end.code, Some(0), "{}", end.stderr);
        }
        let server = start();
        until_known(&server, &ada);
        until_known(&server, &bob);
        assert_eq!(details(&server, &eve), "200");
        until_recorded(&server, 1);
        let output = server.process().output();
        assert_eq!(output.matches("user_revoked").count(), 2, "{output}");
        drop(server);
        let server = start();
        until_recorded(&server, 1);
        let output = server.process().output();
        assert_eq!(output.matches("user_revoked").count(), 0, "{output}");
    }
}

/// Waits until the server has recorded its users so many times.
fn until_recorded(server: &AuthServer, times: usize) {
    let line = "the store has the users of the file";
    wait::until("the users in the store", || {
        let output = server.process().output();
        (output.matches(line).count() >= times).then_some(())
    });
}

#[test]
fn revoke_takes_a_whole_token_and_shows_none() {
    let server = plan().start().ready();
    let (token, other) = (server.login(), server.login());
    let end = done(&server, &["revoke", "--jti", &token]);
    let jti = payload_of(&token)["jti"].as_str().unwrap().to_owned();
    assert_eq!(end.stdout.trim(), format!("token {jti} is revoked"));
    until_known(&server, &token);
    assert_eq!(details(&server, &other), "200");
    let no_id = "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
    for bad in [&token[..token.len() / 2], &"x".repeat(200), no_id, ""] {
        let end = command(&server, &["revoke", "--jti", bad]);
        assert_eq!(end.code, Some(64), "{}", end.stderr);
        let shows = !bad.is_empty() && end.stderr.contains(bad);
        assert!(!shows, "{}", end.stderr);
    }
}

#[test]
fn revoke_reports_an_id_without_a_user() {
    let server = plan().start().ready();
    let users = UsersFile::with("ada", PASSWORD);
    users.add("eve", PASSWORD, &["--id", "7"]);
    let location = users.location();
    let of_user = |id: &'static str| ["revoke", "--users", &location, "--user", id];
    for (words, output, note) in [
        (&of_user("7")[..], "the tokens of user 7 are revoked", ""),
        (
            &of_user("eve"),
            "the tokens of user 7 are revoked",
            "eve is an account",
        ),
        (
            &of_user("nosuch"),
            "the tokens of user nosuch are revoked",
            "no user",
        ),
        (
            &["revoke", "--user", "nosuch"],
            "the tokens of user nosuch are revoked",
            "not the account",
        ),
        (
            &["revoke", "--app", "nosuch"],
            "the tokens of application nosuch are revoked",
            "no application",
        ),
    ] {
        let end = done(&server, words);
        assert_eq!(end.stdout.trim(), output, "{words:?}");
        assert!(end.stderr.contains(note), "{words:?}: {}", end.stderr);
        let is_unsure = ["no user", "not the account", "no application"];
        let is_unsure = is_unsure.iter().any(|text| end.stderr.contains(text));
        assert_eq!(
            is_unsure,
            note.starts_with("no"),
            "{words:?}: {}",
            end.stderr
        );
    }
}

/// Registers an application that obtains tokens, and returns a function that requests one.
fn application<'s>(server: &'s AuthServer, id: &'s str) -> impl Fn() -> Message + 's {
    let words = ["application", "add", "--app-id", id, "--audience=orders"];
    let secret = done(server, &words).stdout.trim().to_owned();
    move || {
        let client = server.anonymous();
        let body = format!("grant_type=client_credentials&client_id={id}&client_secret={secret}");
        let request = client.request("POST", "/oauth/token").line(FORM).body(body);
        client.send(&request)
    }
}

#[test]
fn the_tokens_of_a_removed_application_end_with_it() {
    let server = plan().start().ready();
    let (jobs, other) = (application(&server, "jobs"), application(&server, "other"));
    let token = |request: &dyn Fn() -> Message| {
        let response = wait::until("a token", || {
            let response = request();
            (response.status() == 200).then(|| response.json())
        });
        response["access_token"].as_str().unwrap().to_owned()
    };
    let (of_jobs, of_other) = (token(&jobs), token(&other));
    let end = done(&server, &["application", "remove", "--app-id", "jobs"]);
    assert!(end.stderr.contains("revoked"), "{}", end.stderr);
    // A server that has not read the store yet may issue another token.
    let mut last = of_jobs.clone();
    wait::until("the server to reject the application", || {
        let response = jobs();
        if response.status() == 200 {
            last = response.json()["access_token"].as_str().unwrap().to_owned();
        }
        (response.status() == 401).then_some(())
    });
    until_known(&server, &of_jobs);
    until_known(&server, &last);
    assert_eq!(details(&server, &of_other), "200");
}

#[test]
fn a_revocation_needs_no_signing_type() {
    for signing_type in ["rsa", "ecdsa"] {
        let server = AuthServerPlan::new()
            .flags(["--signing-type", signing_type, "--store-poll-interval", "1"])
            .start()
            .ready();
        let token = server.login();
        done(&server, &["revoke", "--jti", &token]);
        until_known(&server, &token);
    }
}

#[test]
fn logouts_count_with_the_logins_of_an_address() {
    let users = UsersFile::with("ada", PASSWORD);
    let server = plan()
        .flags(["--users", &users.location(), "--login-rate-limit", "3"])
        .start()
        .ready();
    let tokens = [login(&server, "ada"), login(&server, "ada")];
    assert_eq!(log_out(&server, &tokens[0]).status(), 200);
    let limited = log_out(&server, &tokens[1]);
    assert_eq!(limited.status(), 429);
    assert_eq!(limited.json()["error"], "temporarily_unavailable");
    assert_eq!(limited.header("retry-after").len(), 1);
    // One that is revoked already costs the store nothing.
    assert_eq!(log_out(&server, &tokens[0]).status(), 200);
    assert_eq!(log_out(&server, "a.b.c").status(), 200);
}
