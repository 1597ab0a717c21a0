//! Stores that hold something older, wrong or foreign: what running servers make of it, and what a
//! server that starts then finds (ADR 0006).

use tests::auth_server::{AuthServer, AuthServerPlan, SECRET_KEY, USER_DETAILS};
use tests::client::verdict;
use tests::process::{CommandLine, Finished};
use tests::programs::Program;
use tests::redis_server::RedisServer;
use tests::token_forge::header_of;
use tests::wait;

use super::key_refresh::ECDSA;

const APPLICATIONS: &str = "{auth:user-token}:applications";

/// A server that looks into the store every second.
fn plan(redis: &RedisServer) -> AuthServerPlan {
    AuthServerPlan::new()
        .store(redis.url())
        .flags(ECDSA)
        .flags(["--store-reread", "1", "--rotation-lead", "2"])
}

fn server(redis: &RedisServer) -> AuthServer {
    plan(redis).start().ready()
}

fn keys(redis: &RedisServer, words: &[&str]) -> Finished {
    CommandLine::new(Program::AuthServer.path())
        .arguments(["keys"])
        .arguments(words)
        .arguments(["--store", &redis.url()])
        .arguments(ECDSA)
        .run()
}

fn revoke(redis: &RedisServer, kid: &str) {
    let end = keys(redis, &["revoke", kid]);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
}

fn kid_of(token: &str) -> String {
    header_of(token)["kid"].as_str().unwrap().to_owned()
}

fn is_refused(server: &AuthServer, token: &str) -> Option<()> {
    let answer = server.anonymous().bearing(token).get(USER_DETAILS);
    (verdict(&answer) == "401 token_key_unknown").then_some(())
}

#[test]
fn a_bad_record_of_an_application_stops_no_revocation() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let running = server(&redis);
    let token = running.login();
    let bad = r#"{"secretSha256":["short"]}"#;
    redis.command(&["HSET", APPLICATIONS, "orders", bad]);
    revoke(&redis, &kid_of(&token));
    wait::until("the revocation", || is_refused(&running, &token));
    let started = server(&redis);
    for server in [&running, &started] {
        let note = wait::until("the record in /readyz", || server.store_note());
        assert!(
            note.contains(APPLICATIONS) && note.contains("orders"),
            "{note}"
        );
        let answer = server.anonymous().get(SECRET_KEY);
        assert_eq!(verdict(&answer), "401 application_unknown");
    }
    assert_eq!(
        redis.command(&["HGET", APPLICATIONS, "orders"]).as_deref(),
        Some(bad)
    );
    redis.command(&["HDEL", APPLICATIONS, "orders"]);
    wait::until("the note to go", || {
        (running.store_note().is_none()).then_some(())
    });
}
