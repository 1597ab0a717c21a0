//! The shared store (contract §1, §2.6; ADR 0006): several auth servers on one Redis.

use std::thread;

use tests::actors::auth_server::{AuthServerPlan, LOGIN, SECRET_KEY, USER_DETAILS, credentials};
use tests::actors::expect::has;
use tests::keys::{SigningKey, SigningType};
use tests::services::redis_server::{PRIVATE_KEY, PUBLIC_KEY, Redis};
use tests::wait;
use tests::wire::free_address::free_address;

const RESTORED: &str = "postern_auth_server_revocations_restored_total";

fn plan(redis: &Redis) -> AuthServerPlan {
    AuthServerPlan::new().store(redis.url())
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
fn a_store_that_comes_back_empty_is_one_warning() {
    let Some(redis) = Redis::start() else { return };
    let start = || AuthServerPlan::polling().store(redis.url()).ready();
    let server = start();
    let said = "the store had lost its keys: ";
    assert!(!server.process().stderr().contains(said));
    let [token, revoked] = [(); 2].map(|()| server.login());
    assert_eq!(server.log_out(&revoked).status(), 200);
    redis.command(&["FLUSHALL"]);
    let line = server.process().line_with(said);
    has(&line, "WARN");
    has(&line, "sessions are lost");
    wait::until("the keys", || redis.pair().0.is_some());
    wait::until("the revocation", || server.metric(RESTORED) >= Some(1));
    assert_eq!(server.verdict(&token), "200");
    start().until_revoked(&revoked);
    assert_eq!(server.process().stderr().matches(said).count(), 1);
}

#[test]
fn a_store_that_is_down_at_the_start_and_comes_up_later() {
    let address = free_address();
    let server = AuthServerPlan::polling()
        .store(format!("redis://{address}"))
        .start();
    assert_eq!(server.readiness(), 503);
    let found = server.anonymous().post(LOGIN, &credentials()).verdict();
    assert_eq!(found, "503 store_unavailable");
    let rejected = server.anonymous().get(SECRET_KEY);
    assert_eq!(rejected.verdict(), "503 store_unavailable");
    assert_eq!(rejected.header("retry-after").len(), 1);
    let Some(redis) = Redis::start_on(address) else {
        return;
    };
    let server = server.ready();
    assert_eq!(server.logged_in().status(USER_DETAILS), 200);
    assert!(redis.pair().0.is_some());
}
