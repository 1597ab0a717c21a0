//! Sessions and their store: one that others share, is away or killed.

use tests::actors::expect::has;
use tests::wire::moved_clock::MovedClock;

use super::*;

#[test]
fn a_logout_at_a_server_without_refresh_tokens_ends_the_session() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let [begins, ends] = ["on", "off"].map(|it| {
        let plan = AuthServerPlan::polling().store(redis.url());
        plan.flags(["--refresh-tokens", it]).ready()
    });
    let (one, other) = (begins.session_of("ada"), begins.session_of("ada"));
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
fn without_the_store_logins_go_on_and_refreshing_waits() {
    let Some(redis) = Redis::start() else { return };
    let address = redis.address();
    let server = plan().store(redis.url()).ready();
    let tokens = server.session_of("ada");
    // Stalled, and then gone.
    redis.signal("STOP");
    let data = server.login_as("ada", "enchantress").json()["data"].clone();
    assert_eq!(data["refresh_token"], Value::Null);
    assert!(data["access_token"].is_string());
    redis.signal("CONT");
    drop(redis);
    let response = server.refresh(&tokens.refresh);
    assert_eq!(found(&response), UNREADABLE);
    assert_eq!(response.header("retry-after").len(), 1);
    for _ in 0..2 {
        let data = server.login_as("ada", "enchantress").json()["data"].clone();
        assert_eq!(data["refresh_token"], Value::Null);
        assert!(data["access_token"].is_string());
    }
    assert_eq!(server.log_out(&tokens.refresh).status(), 503);
    assert_eq!(event(&server, "not_stored"), Some(3));
    assert_eq!(server.until_logged("the store does not record logins"), 1);
    let Some(redis) = Redis::start_on(address) else {
        return;
    };
    let tokens = server.session_of("ada");
    server.refreshed(&tokens);
    server.until_logged("the store records logins again");
    // One that comes and goes is no line for each login.
    drop(redis);
    let data = server.login_as("ada", "enchantress").json()["data"].clone();
    assert_eq!(data["refresh_token"], Value::Null);
    assert_eq!(server.until_logged("the store does not record logins"), 1);
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
        let wrong = plan().environments(&clock.environment()).ready();
        let of = |server: &AuthServer, account| server.token_of(account, "enchantress");
        let note = format!("this machine's clock is {offset:+} s off");
        has(wrong.store_note().unwrap_or_default(), &note);
        assert_eq!(right.store_note(), None);
        let (ada, bob) = (of(&right, "ada"), of(&right, "bob"));
        for token in [&ada, &of(&wrong, "ada")] {
            assert_eq!(right.verdict(token), "200");
            assert_eq!(wrong.verdict(token), "200");
        }
        drop(right);
        users.done("remove", "bob", "");
        users.done("set-password", "ada", "another one");
        wrong.until_revoked(&ada);
        wrong.until_revoked(&bob);
        let right = plan().ready();
        wait::until("a login that counts", || {
            let ada = right.token_of("ada", "another one");
            right.verdict(&ada) == "200" && wrong.verdict(&ada) == "200"
        });
    }
}

const UNREADABLE: &str = "503 temporarily_unavailable store_unavailable";
