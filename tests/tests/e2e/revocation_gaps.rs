//! Revocations that would miss a token, or end too many: lifetimes and clocks that differ, ids that
//! no token has, users and applications that leave.

use tests::auth_server::{AuthServer, AuthServerPlan};
use tests::echo_service::EchoService;
use tests::expect::has;
use tests::message::Message;
use tests::redis_server::Redis;
use tests::sidecar::SidecarPlan;
use tests::token_forge::jti_of;
use tests::users_file::UsersFile;
use tests::wait;

const PASSWORD: &str = "enchantress";

#[test]
fn a_logout_ends_a_token_that_only_sidecars_still_accept() {
    let server = AuthServerPlan::polling()
        .flags(["--token-lifetime", "1"])
        .ready();
    let service = EchoService::start();
    let lenient = SidecarPlan::polling(&service, &server.url())
        .flags(["--leeway", "300"])
        .ready();
    let token = server.login();
    wait::until("the token to be too old for the server", || {
        server.verdict(&token) == "401 token_expired"
    });
    let bearer = lenient.bearing(&token);
    assert_eq!(bearer.verdict("/list"), "200");
    assert_eq!(server.log_out(&token).status(), 200);
    lenient.until_revoked(&token);
}

#[test]
fn a_user_who_is_removed_while_no_server_runs_is_out() {
    let redis = Redis::start();
    for redis in [None, redis.as_ref()] {
        let users = UsersFile::new();
        for account in ["ada", "bob", "eve", "sue"] {
            users.add(account, PASSWORD, &[]);
        }
        let home = tempfile::tempdir().unwrap();
        let start = || {
            let plan = match redis {
                Some(redis) => AuthServerPlan::polling().store(redis.url()),
                None => AuthServerPlan::polling().directory(home.path()),
            };
            let flags = ["--users", &users.location(), "--log-level", "debug"];
            plan.flags(flags).ready()
        };
        let server = start();
        until_recorded(&server, 1);
        let [ada, bob, eve, sue] =
            ["ada", "bob", "eve", "sue"].map(|it| server.token_of(it, PASSWORD));
        // A change while it runs is recorded as well.
        assert_eq!(users.command("disable", "sue", &[], "").code, Some(0));
        server.until_revoked(&sue);
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
        server.until_revoked(&ada);
        server.until_revoked(&bob);
        assert_eq!(server.verdict(&eve), "200");
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
        output.matches(line).count() >= times
    });
}

#[test]
fn revoke_takes_a_whole_token_and_shows_none() {
    let server = AuthServerPlan::polling().ready();
    let (token, other) = (server.login(), server.login());
    let output = server.done(&["revoke", "--jti", &token]);
    let jti = jti_of(&token);
    assert_eq!(output, format!("token {jti} is revoked"));
    server.until_revoked(&token);
    assert_eq!(server.verdict(&other), "200");
    let no_id = "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
    for bad in [&token[..token.len() / 2], &"x".repeat(200), no_id, ""] {
        let end = server.command(&["revoke", "--jti", bad]);
        assert_eq!(end.code, Some(64), "{}", end.stderr);
        let shows = !bad.is_empty() && end.stderr.contains(bad);
        assert!(!shows, "{}", end.stderr);
    }
}

#[test]
fn revoke_reports_what_it_does_not_know() {
    let server = AuthServerPlan::polling().ready();
    for (what, output, note) in [
        (
            ["--user", "nosuch"],
            "the tokens of user nosuch are revoked",
            "not the account",
        ),
        (
            ["--app", "nosuch"],
            "the tokens of application nosuch are revoked",
            "no application",
        ),
    ] {
        let end = server.command(&[&["revoke"], &what[..]].concat());
        assert_eq!(end.code, Some(0), "{what:?}: {}", end.stderr);
        assert_eq!(end.stdout.trim(), output, "{what:?}");
        assert!(end.stderr.contains(note), "{what:?}: {}", end.stderr);
    }
}

/// Registers an application that obtains tokens, and returns a function that requests one.
fn application<'s>(server: &'s AuthServer, id: &'s str) -> impl Fn() -> Message + 's {
    let words = ["application", "add", "--app-id", id, "--audience=orders"];
    let secret = server.done(&words);
    move || {
        let form = format!("grant_type=client_credentials&client_id={id}&client_secret={secret}");
        server.anonymous().post_form("/oauth/token", &form)
    }
}

#[test]
fn the_tokens_of_a_removed_application_end_with_it() {
    let server = AuthServerPlan::polling().ready();
    let (jobs, other) = (application(&server, "jobs"), application(&server, "other"));
    let token = |request: &dyn Fn() -> Message| {
        let response = wait::until("a token", || {
            let response = request();
            (response.status() == 200).then(|| response.json())
        });
        response["access_token"].as_str().unwrap().to_owned()
    };
    let (of_jobs, of_other) = (token(&jobs), token(&other));
    let end = server.command(&["application", "remove", "--app-id", "jobs"]);
    has(&end.stderr, "revoked");
    // A server that has not read the store yet may issue another token.
    let mut last = of_jobs.clone();
    wait::until("the server to reject the application", || {
        let response = jobs();
        if response.status() == 200 {
            last = response.json()["access_token"].as_str().unwrap().to_owned();
        }
        response.status() == 401
    });
    server.until_revoked(&of_jobs);
    server.until_revoked(&last);
    assert_eq!(server.verdict(&of_other), "200");
}

#[test]
fn a_revocation_needs_no_signing_type() {
    for signing_type in ["rsa", "ecdsa"] {
        let server = AuthServerPlan::new()
            .flags(["--signing-type", signing_type, "--store-poll-interval", "1"])
            .ready();
        let token = server.login();
        server.done(&["revoke", "--jti", &token]);
        server.until_revoked(&token);
    }
}

#[test]
fn guesses_at_an_address_keep_no_client_from_its_session() {
    let users = UsersFile::with("ada", PASSWORD);
    let server = AuthServerPlan::polling()
        .flags(["--users", &users.location(), "--login-rate-limit", "3"])
        .flags(["--refresh-tokens", "on"])
        .ready();
    let tokens = [(); 3].map(|()| {
        let data = server.login_as("ada", PASSWORD).json()["data"].clone();
        ["access_token", "refresh_token"].map(|name| data[name].as_str().unwrap().to_owned())
    });
    let refresh = |token: &str| {
        let form = format!("grant_type=refresh_token&refresh_token={token}");
        server.anonymous().post_form("/oauth/token", &form)
    };
    let [[one, used], [_, other], [last, _]] = &tokens;
    let unknown = format!("postern_rt_{}", "A".repeat(64));
    for limited in [refresh(&unknown), server.log_out(&unknown)] {
        assert_eq!(limited.status(), 429);
        assert_eq!(limited.json()["error"], "temporarily_unavailable");
        assert_eq!(limited.header("retry-after").len(), 1);
    }
    assert_eq!(refresh(used).status(), 200);
    assert_eq!(server.log_out(other).status(), 200);
    assert_eq!(server.log_out(one).status(), 200);
    // What is no token of this server needs no call of the store.
    assert_eq!(server.log_out("a.b.c").status(), 200);
    assert_eq!(server.log_out(last).status(), 200);
    assert_eq!(server.log_out(last).status(), 429, "four that are right");
}
