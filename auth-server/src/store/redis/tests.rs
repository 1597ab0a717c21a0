//! Failures that only Redis has, against a real server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use super::super::conformance::installations::Redis;
use super::super::conformance::{application, put};
use super::scripts::PREFIX;
use super::*;
use crate::store::NewEntry;

#[tokio::test]
async fn a_key_of_another_type_is_unusable_and_nothing_is_written() {
    for foreign in ["application:b", "index:application", "last"] {
        let Some(redis) = Redis::start() else { return };
        let (store, key) = (redis.store(), format!("{PREFIX}{foreign}"));
        redis.0.command(&["RPUSH", &key, "not ours"]);
        let both = vec![put("a", None, "1"), put("b", None, "2")];
        let error = store.commit(both).await.unwrap_err();
        assert!(matches!(error, StoreError::Unusable(_)), "{error}");
        assert_eq!(redis.0.command(&["DBSIZE"]).as_deref(), Some("1"));
    }
}

#[tokio::test]
async fn a_replica_or_a_full_store_takes_nothing_and_is_away_for_now() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.store();
    for (limit, lifted) in [
        (
            ["CONFIG", "SET", "maxmemory", "1"],
            ["CONFIG", "SET", "maxmemory", "0"],
        ),
        (
            ["CONFIG", "SET", "min-replicas-to-write", "1"],
            ["CONFIG", "SET", "min-replicas-to-write", "0"],
        ),
    ] {
        redis.0.command(&limit);
        let error = store.commit(vec![put("a", None, "1")]).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        redis.0.command(&lifted);
        assert_eq!(store.get(&application("a")).await, Ok(None));
    }
    redis.0.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let replica = store.commit(vec![put("a", None, "1")]).await.unwrap_err();
    assert!(matches!(replica, StoreError::Unavailable(_)), "{replica}");
    redis.0.command(&["REPLICAOF", "NO", "ONE"]);
    redis.0.command(&["SCRIPT", "FLUSH"]);
    let done = store.commit(vec![put("a", None, "1")]).await;
    assert_eq!(done, Ok(Outcome::Committed));
}

/// The operator who reads the message deletes that key.
#[tokio::test]
async fn a_record_is_described_by_its_key_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.store();
    store.commit(vec![put("a", None, "1")]).await.unwrap();
    let text = store.describe(&application("a"));
    let key = text.rsplit(' ').next().unwrap();
    assert_eq!(redis.0.command(&["DEL", key]).as_deref(), Some("1"));
}

#[tokio::test]
async fn a_repeated_commit_is_one() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.store();
    let append = Change::Append(NewEntry {
        value: "entry".to_owned(),
        ends: store.now().await.unwrap() + 1000,
        above: 0,
    });
    let command = scripts::commit(&[append]).unwrap();
    for _ in 0..2 {
        assert_eq!(store.commit_once(&command).await, Ok(true));
    }
    assert_eq!(store.since(0).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_commit_that_a_stalled_server_got_is_unclear() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.store();
    redis.0.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let error = store.commit(vec![put("a", None, "1")]).await.unwrap_err();
    assert!(matches!(error, StoreError::Unclear(_)), "{error}");
    redis.0.signal("STOP");
    // No connection is made, so nothing was sent.
    let error = store.commit(vec![put("a", None, "1")]).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let read = store.get(&application("a")).await.unwrap_err();
    assert!(matches!(read, StoreError::Unavailable(_)), "{read}");
    redis.0.signal("CONT");
}
