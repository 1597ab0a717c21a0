//! Sessions end: by logout, by command, beyond the limit of a user.

use super::*;

#[test]
fn beyond_the_limit_a_login_ends_the_oldest_session_of_its_user() {
    let users = UsersFile::with("ada", "enchantress");
    users.add("bob", "enchantress", &[]);
    let flags = ["--users", &users.location(), "--sessions-per-user", "2"];
    let server = plan().flags(flags).ready();
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
    server.until_revoked(&first.access);
    assert_ended(&server, &first);
    for kept in [&third, &fourth, &of_bob] {
        server.refreshed(kept);
    }
    let line = "event=session_ended account=\"ada\" cause=limit";
    assert_eq!(server.until_logged(line), 1);
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
    for tokens in [&one, &next] {
        server.until_revoked(&tokens.access);
    }
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
