//! Revocations that would miss a token, or end too many: users who leave, ids that no token has.

use tests::actors::auth_server::{AuthServer, AuthServerPlan};
use tests::actors::sessions::PASSWORD;
use tests::actors::token_forge::jti_of;
use tests::actors::users_file::UsersFile;
use tests::wait;

#[test]
fn a_user_who_is_removed_while_no_server_runs_is_out() {
    let users = UsersFile::new();
    for account in ["ada", "bob", "dan", "eve", "sue"] {
        users.add(account, PASSWORD, &[]);
    }
    let home = tempfile::tempdir().unwrap();
    let start = || {
        let plan = AuthServerPlan::polling().directory(home.path());
        let flags = ["--users", &users.location(), "--log-level", "debug"];
        plan.flags(flags).flags(["--refresh-tokens", "on"]).ready()
    };
    let server = start();
    until_recorded(&server, 1);
    let [ada, bob, dan, eve, sue] =
        ["ada", "bob", "dan", "eve", "sue"].map(|it| server.token_of(it, PASSWORD));
    let sessions = ["ada", "bob", "dan", "sue"].map(|it| server.session_of(it));
    // A change while it runs is recorded as well.
    users.done("disable", "sue", "");
    server.until_revoked(&sue);
    assert_eq!(server.refresh(&sessions[3].refresh).status(), 400);
    until_recorded(&server, 2);
    users.done("enable", "sue", "");
    until_recorded(&server, 3);
    drop(server);
    users.done("remove", "ada", "");
    users.done("set-password", "bob", "another enchantress");
    users.done("disable", "dan", "");
    let server = start();
    for (token, session) in [&ada, &bob, &dan].into_iter().zip(&sessions) {
        server.until_revoked(token);
        assert_eq!(server.refresh(&session.refresh).status(), 400);
    }
    assert_eq!(server.verdict(&eve), "200");
    until_recorded(&server, 1);
    let output = server.process().output();
    assert_eq!(output.matches("user_revoked").count(), 3, "{output}");
    drop(server);
    let server = start();
    until_recorded(&server, 1);
    let output = server.process().output();
    assert_eq!(output.matches("user_revoked").count(), 0, "{output}");
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
    // A command needs no signing type.
    let plan = AuthServerPlan::new().flags(["--store-poll-interval", "1"]);
    for server in [AuthServerPlan::polling().ready(), plan.ready()] {
        let (token, other) = (server.login(), server.login());
        let output = server.done(&["revoke", "--jti", &token]);
        let jti = jti_of(&token);
        assert_eq!(output, format!("token {jti} is revoked"));
        server.until_revoked(&token);
        assert_eq!(server.verdict(&other), "200");
    }
    let server = AuthServer::start();
    let token = server.login();
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
    for (flag, what, note) in [
        ("--user", "user nosuch", "not the account"),
        ("--app", "application nosuch", "no application"),
    ] {
        let end = server.command(&["revoke", flag, "nosuch"]);
        end.says(0, note);
        let output = format!("the tokens of {what} are revoked");
        assert_eq!(end.stdout.trim(), output, "{flag}");
    }
}

#[test]
fn guesses_at_an_address_keep_no_client_from_its_session() {
    let users = UsersFile::with("ada", PASSWORD);
    let server = AuthServerPlan::polling()
        .flags(["--users", &users.location(), "--login-rate-limit", "3"])
        .flags(["--refresh-tokens", "on"])
        .ready();
    let [one, other, last] = [(); 3].map(|()| server.session_of("ada"));
    let unknown = format!("postern_rt_{}", "A".repeat(64));
    for limited in [server.refresh(&unknown), server.log_out(&unknown)] {
        assert_eq!(limited.status(), 429);
        assert_eq!(limited.json()["error"], "temporarily_unavailable");
        assert_eq!(limited.header("retry-after").len(), 1);
    }
    assert_eq!(server.refresh(&one.refresh).status(), 200);
    assert_eq!(server.log_out(&other.refresh).status(), 200);
    assert_eq!(server.log_out(&one.access).status(), 200);
    // What is no token of this server needs no call of the store.
    assert_eq!(server.log_out("a.b.c").status(), 200);
    let outcomes = [(); 2].map(|()| server.log_out(&last.access).status());
    assert_eq!(outcomes, [200, 429], "four that are right");
}
