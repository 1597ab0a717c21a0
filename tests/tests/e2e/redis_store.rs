//! The shared store (contract §1, §2.6; ADR 0006): several auth servers on one Redis.

use std::thread;

use tests::auth_server::{
    AuthServer, AuthServerPlan, LOGIN, SECRET_KEY, USER_DETAILS, credentials,
};
use tests::certificates::write_private;
use tests::client::verdict;
use tests::echo_service::EchoService;
use tests::free_address::free_address;
use tests::keys::{SigningKey, SigningType};
use tests::redis_server::{PRIVATE_KEY, PUBLIC_KEY, RedisServer};
use tests::sidecar::Sidecar;
use tests::token_forge::header_of;
use tests::wait;

/// Returns a server on `redis` that polls the store every second.
fn plan(redis: &RedisServer) -> AuthServerPlan {
    plan_for(&redis.url())
}

fn plan_for(url: &str) -> AuthServerPlan {
    let plan = AuthServerPlan::new().store(url);
    plan.flags(["--store-poll-interval", "1"])
}

#[test]
fn contract_1_two_servers_at_once_end_with_one_pair() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    for round in 1..=20 {
        redis.command(&["FLUSHALL"]);
        let start = || plan(&redis).flags(["--signing-type", "ecdsa"]).ready();
        let (one, other) = thread::scope(|scope| {
            let other = scope.spawn(start);
            (start(), other.join().unwrap())
        });
        assert_eq!(one.served_key(), other.served_key(), "round {round}");
        assert_eq!(
            redis.pair().1.as_deref().map(str::trim),
            Some(one.served_key().trim()),
            "round {round}"
        );
        for (issuer, verifier) in [(&one, &other), (&other, &one)] {
            assert_eq!(verifier.verdict(&issuer.login()), "200", "round {round}");
        }
    }
}

#[test]
fn contract_1_two_servers_with_rsa_keys_end_with_one_pair() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let servers: Vec<AuthServer> = thread::scope(|scope| {
        let starts: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| plan(&redis).ready()))
            .collect();
        starts
            .into_iter()
            .map(|start| start.join().unwrap())
            .collect()
    });
    let keys: Vec<String> = servers.iter().map(AuthServer::served_key).collect();
    assert!(keys.iter().all(|key| *key == keys[0]));
}

#[test]
fn contract_1_a_token_is_accepted_through_the_other_server() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let (one, other) = (plan(&redis).ready(), plan(&redis).ready());
    let service = EchoService::start();
    let sidecar = Sidecar::start(&service, &other);
    let response = sidecar.bearing(&one.login()).get("/list");
    assert_eq!(response.status(), 200, "{}", response.text());
}

#[test]
fn contract_1_a_present_pair_is_loaded_and_kept() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let key = SigningKey::generate(SigningType::Rsa);
    redis.command(&["SET", PRIVATE_KEY, &key.private()]);
    redis.command(&["SET", PUBLIC_KEY, &key.served()]);
    let server = plan(&redis).ready();
    assert_eq!(server.served_key().trim(), key.served().trim());
    assert_eq!(
        redis.pair(),
        (Some(key.private()), Some(key.served())),
        "nothing was written"
    );
}

#[test]
fn contract_2_6_both_values_stay_under_two_fixed_keys() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
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
fn contract_1_half_a_pair_is_replaced_by_a_whole_one() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let key = SigningKey::generate(SigningType::Rsa);
    for (name, value) in [(PRIVATE_KEY, key.private()), (PUBLIC_KEY, key.served())] {
        redis.command(&["FLUSHALL"]);
        redis.command(&["SET", name, &value]);
        let server = plan(&redis).ready();
        let (private, public) = redis.pair();
        assert!(private.is_some() && public.is_some(), "{name} alone");
        assert_ne!(public.unwrap(), key.served(), "a new pair");
        assert_eq!(server.logged_in().get(USER_DETAILS).status(), 200);
    }
}

#[test]
fn a_mismatched_pair_stops_the_start_and_is_left_as_it_is() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let (one, other) = (
        SigningKey::generate(SigningType::Rsa),
        SigningKey::generate(SigningType::Rsa),
    );
    redis.command(&["SET", PRIVATE_KEY, &one.private()]);
    redis.command(&["SET", PUBLIC_KEY, &other.served()]);
    let end = plan(&redis).fails();
    assert_eq!(end.code, Some(78), "{}", end.stderr);
    assert!(
        end.stderr
            .lines()
            .last()
            .is_some_and(|line| line.contains(PUBLIC_KEY)),
        "{}",
        end.stderr
    );
    assert!(
        !end.stderr.contains("BEGIN"),
        "no key material in the complaint"
    );
    assert_eq!(redis.pair(), (Some(one.private()), Some(other.served())));
}

#[test]
fn a_pair_of_another_type_stops_the_start_and_stays() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let ecdsa = SigningKey::generate(SigningType::Ecdsa);
    for (private, public) in [
        (ecdsa.private(), ecdsa.served()),
        ("garbage".to_owned(), "garbage".to_owned()),
    ] {
        redis.command(&["SET", PRIVATE_KEY, &private]);
        redis.command(&["SET", PUBLIC_KEY, &public]);
        let end = plan(&redis).fails();
        assert_eq!(end.code, Some(78), "{}", end.stderr);
        assert_eq!(redis.pair(), (Some(private), Some(public)));
    }
}

#[test]
fn a_later_mismatch_keeps_the_pair_in_memory() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let server = plan(&redis).ready();
    let (key, foreign) = (
        server.served_key(),
        SigningKey::generate(SigningType::Rsa).served(),
    );
    redis.command(&["SET", PUBLIC_KEY, &foreign]);
    let note = wait::until("the mismatch in the log", || server.store_note());
    assert!(note.contains(PUBLIC_KEY), "{note}");
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
    assert_eq!(
        verdict(&server.anonymous().post(LOGIN, &credentials())),
        "503 store_unavailable"
    );
    assert_eq!(
        verdict(&server.anonymous().get(SECRET_KEY)),
        "503 store_unavailable"
    );
    assert!(
        server
            .anonymous()
            .get(SECRET_KEY)
            .header("retry-after")
            .len()
            == 1
    );
    let Some(redis) = RedisServer::start_on(address) else {
        return;
    };
    let server = server.ready();
    assert_eq!(server.logged_in().get(USER_DETAILS).status(), 200);
    assert!(redis.pair().0.is_some());
}

#[test]
fn a_store_that_goes_down_while_running_leaves_logins_working() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let server = plan(&redis).ready();
    let token = server.login();
    drop(redis);
    server.until_logged("store is unavailable");
    assert_eq!(server.readiness(), 200, "it serves as well as before");
    assert_eq!(server.verdict(&token), "200");
    assert_eq!(
        server.logged_in().get(USER_DETAILS).status(),
        200,
        "the key in memory signs"
    );
}

#[test]
fn flushall_while_running_brings_the_pair_in_memory_back() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let servers = [plan(&redis).ready(), plan(&redis).ready()];
    let (token, before) = (servers[0].login(), redis.pair());
    redis.command(&["FLUSHALL"]);
    wait::until("the pair to be back", || redis.pair() == before);
    for server in &servers {
        assert_eq!(server.verdict(&token), "200");
    }
}

#[test]
fn another_valid_pair_in_the_store_is_adopted() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
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
    assert_eq!(server.logged_in().get(USER_DETAILS).status(), 200);
    assert_eq!(redis.pair(), (Some(next.private()), Some(next.served())));
}

#[test]
fn a_store_s_password_comes_from_a_file_and_is_never_printed() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    redis.command(&["CONFIG", "SET", "requirepass", "hush-redis-77"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    write_private(&file, "hush-redis-77");
    let server = plan(&redis)
        .flags(["--store-password-file", file.to_str().unwrap()])
        .ready();
    assert_eq!(header_of(&server.login())["typ"], "JWT");
    assert!(!server.process().output().contains("hush-redis-77"));
    let without = plan(&redis).fails();
    assert_eq!(without.code, Some(78), "{}", without.stderr);
}
