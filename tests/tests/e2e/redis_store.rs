//! The shared store (contract §1, §2.6; ADR 0006): several auth servers on one Redis.

use std::thread;

use tests::auth_server::{AuthServerPlan, LOGIN, SECRET_KEY, USER_DETAILS, credentials};
use tests::expect::has;
use tests::free_address::free_address;
use tests::keys::{SigningKey, SigningType};
use tests::redis_server::{PRIVATE_KEY, PUBLIC_KEY, Redis};
use tests::wait;

/// Returns a server on `redis` that polls the store every second.
fn plan(redis: &Redis) -> AuthServerPlan {
    plan_for(&redis.url())
}

fn plan_for(url: &str) -> AuthServerPlan {
    let plan = AuthServerPlan::new().store(url);
    plan.flags(["--store-poll-interval", "1"])
}

#[test]
fn contract_1_two_servers_at_once_end_with_one_pair() {
    let Some(redis) = Redis::start() else { return };
    for round in 1..=20 {
        redis.command(&["FLUSHALL"]);
        let start = || plan(&redis).flags(["--signing-type", "ecdsa"]).ready();
        let (one, other) = thread::scope(|scope| {
            let other = scope.spawn(start);
            (start(), other.join().unwrap())
        });
        assert_eq!(one.served_key(), other.served_key(), "round {round}");
        let found = redis.pair().1.unwrap_or_default();
        assert_eq!(found.trim(), one.served_key().trim(), "round {round}");
        for (issuer, verifier) in [(&one, &other), (&other, &one)] {
            assert_eq!(verifier.verdict(&issuer.login()), "200", "round {round}");
        }
    }
}

#[test]
fn contract_1_a_present_pair_is_loaded_and_kept() {
    let Some(redis) = Redis::start() else { return };
    let key = SigningKey::generate(SigningType::Rsa);
    redis.command(&["SET", PRIVATE_KEY, &key.private()]);
    redis.command(&["SET", PUBLIC_KEY, &key.served()]);
    let server = plan(&redis).ready();
    assert_eq!(server.served_key().trim(), key.served().trim());
    let expected = (Some(key.private()), Some(key.served()));
    assert_eq!(redis.pair(), expected, "nothing was written");
}

#[test]
fn contract_2_6_both_values_stay_under_two_fixed_keys() {
    let Some(redis) = Redis::start() else { return };
    let server = plan(&redis).ready();
    let (private, public) = redis.pair();
    assert!(private.unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
    assert!(
        public
            .as_deref()
            .unwrap()
            .starts_with("-----BEGIN PUBLIC KEY-----")
    );
    let token = server.login();
    drop(server);
    let again = plan(&redis).ready();
    assert_eq!(redis.pair().1, public);
    assert_eq!(again.verdict(&token), "200", "tokens outlive a restart");
}

#[test]
fn a_later_mismatch_keeps_the_pair_in_memory() {
    let Some(redis) = Redis::start() else { return };
    let server = plan(&redis).ready();
    let (key, foreign) = (
        server.served_key(),
        SigningKey::generate(SigningType::Rsa).served(),
    );
    redis.command(&["SET", PUBLIC_KEY, &foreign]);
    let note = wait::until("the mismatch in the log", || server.store_note());
    has(&note, "do not belong together");
    assert_eq!(server.readiness(), 200, "all servers would go at once");
    assert_eq!(server.metric("postern_auth_server_store_up"), Some(0));
    assert_eq!(server.served_key(), key);
    assert_eq!(redis.pair().1, Some(foreign), "nothing is overwritten");
}

#[test]
fn a_store_that_is_down_at_the_start_and_comes_up_later() {
    let address = free_address();
    let server = plan_for(&format!("redis://{address}")).start();
    assert_eq!(server.readiness(), 503);
    let found = server.anonymous().post(LOGIN, &credentials()).verdict();
    assert_eq!(found, "503 store_unavailable");
    let expected = "503 store_unavailable";
    assert_eq!(server.anonymous().verdict(SECRET_KEY), expected);
    assert!(
        server
            .anonymous()
            .get(SECRET_KEY)
            .header("retry-after")
            .len()
            == 1
    );
    let Some(redis) = Redis::start_on(address) else {
        return;
    };
    let server = server.ready();
    assert_eq!(server.logged_in().status(USER_DETAILS), 200);
    assert!(redis.pair().0.is_some());
}

#[test]
fn another_valid_pair_in_the_store_is_adopted() {
    let Some(redis) = Redis::start() else { return };
    let server = plan(&redis).ready();
    let next = SigningKey::generate(SigningType::Rsa);
    redis.command(&[
        "MSET",
        PRIVATE_KEY,
        &next.private(),
        PUBLIC_KEY,
        &next.served(),
    ]);
    wait::until("the new key to be served", || {
        server.served_key().trim() == next.served().trim()
    });
    assert_eq!(server.logged_in().status(USER_DETAILS), 200);
    assert_eq!(redis.pair(), (Some(next.private()), Some(next.served())));
}
