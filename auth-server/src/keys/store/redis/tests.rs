//! Failures that only Redis has, against a real server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::time::Instant;

use super::super::conformance::installations::Redis;
use super::*;

fn keys() -> StoredKeys {
    let text = |name: &str| Some(name.to_owned());
    stored((text("private"), text("public"), text("ring")))
}

async fn install(store: &dyn KeyStore) -> Result<StoredKeys, StoreError> {
    store
        .compare_and_swap(&StoredKeys::default(), &keys())
        .await
}

#[tokio::test]
async fn a_value_of_another_type_is_unusable_and_stays() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.open_with(None);
    redis.command(&["RPUSH", PRIVATE, "not ours"]).await;
    for error in [
        store.load().await.unwrap_err(),
        install(&*store).await.unwrap_err(),
    ] {
        assert!(matches!(&error, StoreError::Unusable(_)), "{error}");
    }
    assert_eq!(
        redis.command(&["LLEN", PRIVATE]).await,
        redis::Value::Int(1)
    );
    assert_eq!(
        redis.command(&["EXISTS", PUBLIC]).await,
        redis::Value::Int(0)
    );
}

#[tokio::test]
async fn wrong_credentials_are_unusable_and_right_ones_are_used() {
    let Some(redis) = Redis::start_with(&["--requirepass", "hush"]) else {
        return;
    };
    for password in [None, Some("wrong")] {
        let error = redis.open_with(password).load().await.unwrap_err();
        assert!(matches!(&error, StoreError::Unusable(_)), "{error}");
        assert!(!error.to_string().contains("hush"));
    }
    let nothing = Ok(StoredKeys::default());
    assert_eq!(redis.open_with(Some("hush")).load().await, nothing);
}

#[tokio::test]
async fn a_forbidden_database_is_unusable_and_the_right_is_named() {
    let Some(redis) = Redis::start() else { return };
    let rights = "+eval +get +set +del";
    let user = "ACL SETUSER postern on >hush ~{auth:user-token}:*";
    let words: Vec<_> = user.split(' ').chain(rights.split(' ')).collect();
    redis.command(&words).await;
    let address = |database| format!("{}?db={database}&user=postern", redis.address());
    let open = |database| redis.open_at(&address(database), Some("hush"));
    let nothing = Ok(StoredKeys::default());
    assert_eq!(open(0).load().await, nothing);
    assert_eq!(open(0).now().await, Ok(None), "the keys need no clock");
    redis.command(&["ACL", "SETUSER", "postern", "+time"]).await;
    assert!(open(0).now().await.unwrap().is_some());

    let error = open(2).load().await.unwrap_err();
    assert!(matches!(&error, StoreError::Unusable(_)), "{error}");
    assert!(error.to_string().contains("'select'"), "{error}");
    redis
        .command(&["ACL", "SETUSER", "postern", "+select"])
        .await;
    assert_eq!(open(2).load().await, nothing);
    let error = open(99).load().await.unwrap_err();
    assert!(matches!(&error, StoreError::Unusable(_)), "{error}");
}

#[tokio::test]
async fn a_replica_or_a_full_store_takes_nothing_and_is_away_for_now() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.open_with(None);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let full = install(&*store).await.unwrap_err();
    assert!(matches!(&full, StoreError::Unavailable(_)), "{full}");
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(store.load().await, Ok(StoredKeys::default()));

    redis.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let replica = install(&*store).await.unwrap_err();
    assert!(matches!(&replica, StoreError::Unavailable(_)), "{replica}");
    redis.command(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(install(&*store).await, Ok(keys()));
}

#[tokio::test]
async fn a_stalled_server_is_given_up_and_used_again_when_it_goes_on() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.open_with(None);
    signal(&redis, "STOP");
    let started = Instant::now();
    let error = store.load().await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(_)), "{error}");
    assert!(started.elapsed() < std::time::Duration::from_secs(6));
    signal(&redis, "CONT");
    assert_eq!(store.load().await, Ok(StoredKeys::default()));
}

#[tokio::test]
async fn a_server_that_is_gone_is_away() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.open_with(None);
    drop(redis);
    let error = store.load().await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(_)), "{error}");
}

fn signal(redis: &Redis, name: &str) {
    let id = redis.process_id().to_string();
    let status = std::process::Command::new("kill")
        .args(["-s", name, &id])
        .status();
    assert!(status.unwrap().success());
}
