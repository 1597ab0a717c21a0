//! Failures that only Redis has, against a real server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use ::tests::services::redis_server::documented_rights;

use super::super::conformance::installations::Redis;
use super::super::conformance::{application, put};
use super::scripts::PREFIX;
use super::*;
use crate::store::NewEntry;

/// Returns the store as a user of Redis with other rights than the documented ones opens it.
fn store_of_user(redis: &Redis, changed: &[&str]) -> RedisStore {
    redis.0.user("postern", "hush", changed);
    let url = format!("redis://postern:hush@{}", redis.0.address());
    RedisStore::new(&url, Credentials::default()).unwrap()
}

fn append(value: &str) -> Change {
    Change::Append(NewEntry {
        value: value.to_owned(),
        ends: postern_process::clock::unix_now() + 1000,
        above: 0,
    })
}

/// Returns one change of every kind, for a store that has the record `a` and an entry.
async fn every_change(store: &RedisStore) -> Vec<Change> {
    let held = store.get(&application("a")).await.unwrap().unwrap();
    let entry = store.since(0).await.unwrap().remove(0);
    let ending = Change::Put {
        key: application("c"),
        expected: None,
        value: "3".to_owned().into(),
        ends: Some(entry.ends),
    };
    let delete = Change::Delete {
        key: application("a"),
        expected: held.version,
    };
    let remove = Change::Remove {
        ids: vec![entry.id],
        expected: entry,
    };
    vec![put("b", None, "2"), ending, delete, append("new"), remove]
}

/// Returns a number for all in the store except the marks of commits.
fn digest(redis: &Redis) -> Option<String> {
    let script = "local all = {}
        for _, key in ipairs(redis.call('KEYS', '*')) do
          if not string.find(key, ':commit:') then all[#all + 1] = key .. redis.call('DUMP', key) end
        end
        table.sort(all)
        return redis.sha1hex(table.concat(all))";
    redis.0.command(&["EVAL", script, "0"])
}

#[tokio::test]
async fn without_any_one_right_nothing_is_written() {
    let Some(redis) = Redis::start() else { return };
    let first = redis.store();
    let first = first.commit(vec![put("a", None, "1"), append("old")]);
    assert_eq!(first.await, Ok(Outcome::Committed));
    let rights = documented_rights();
    let without = |right: &str| vec![right.replace('+', "-")];
    let rows = rights.iter().map(|right| (&**right, without(right)));
    // Its right to the keys ends, not the one to a command.
    let rows = rows.chain([("keys", vec!["resetkeys".to_owned(), "%R~*".to_owned()])]);
    for (right, changed) in rows {
        let changes = every_change(&redis.store()).await;
        let before = digest(&redis);
        let changed: Vec<_> = changed.iter().map(String::as_str).collect();
        let store = store_of_user(&redis, &changed);
        for outcome in [store.check().await, store.commit(changes).await.map(drop)] {
            let error = outcome.unwrap_err();
            let named = right.trim_start_matches('+').to_uppercase();
            let is_named = error.to_string().to_uppercase().contains(&named);
            assert!(
                matches!(error, StoreError::Unusable(_)) && is_named,
                "{right}: {error}"
            );
        }
        assert_eq!(digest(&redis), before, "{right}");
    }
    let (store, before) = (store_of_user(&redis, &[]), digest(&redis));
    assert_eq!(store.check().await, Ok(()));
    assert_eq!(digest(&redis), before, "it leaves nothing");
    let changes = every_change(&store).await;
    assert_eq!(store.commit(changes).await, Ok(Outcome::Committed));
}

#[tokio::test]
async fn a_key_of_another_type_is_unusable_and_nothing_is_written() {
    for foreign in [
        "application:b",
        "application:c",
        "index:application",
        "last",
        "log:revocations",
        "log:revocations:ends",
    ] {
        let Some(redis) = Redis::start() else { return };
        let store = redis.store();
        let first = vec![put("a", None, "1"), append("old")];
        store.commit(first).await.unwrap();
        let changes = every_change(&store).await;
        let key = format!("{PREFIX}{foreign}");
        redis.0.command(&["DEL", &key]);
        redis.0.command(&["RPUSH", &key, "not ours"]);
        let before = digest(&redis);
        let error = store.commit(changes).await.unwrap_err();
        assert!(
            matches!(error, StoreError::Unusable(_)),
            "{foreign}: {error}"
        );
        let is_checked = !foreign.starts_with("application:");
        assert_eq!(store.check().await.is_err(), is_checked, "{foreign}");
        assert_eq!(digest(&redis), before, "{foreign}");
    }
}

#[tokio::test]
async fn every_index_is_checked() {
    for kind in Kind::ALL {
        let Some(redis) = Redis::start() else { return };
        let index = format!("{PREFIX}index:{}", kind.name());
        redis.0.command(&["SET", &index, "not ours"]);
        let error = redis.store().check().await.unwrap_err();
        assert!(matches!(error, StoreError::Unusable(_)), "{index}: {error}");
    }
}

#[tokio::test]
async fn a_number_that_was_never_given_is_unusable() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.store();
    let last = format!("{PREFIX}last");
    store.commit(vec![append("old")]).await.unwrap();
    for number in [
        "x",
        "",
        "nan",
        "inf",
        "1e300",
        "1e+14",
        "100000000000000",
        "9007199254740993",
        "99999999999999999999",
    ] {
        redis.0.command(&["SET", &last, number]);
        let before = digest(&redis);
        let commit = store.commit(vec![append("new")]).await.map(drop);
        for outcome in [commit, store.check().await] {
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, StoreError::Unusable(_)) && error.to_string().contains(&last),
                "{number}: {error}"
            );
        }
        assert_eq!(digest(&redis), before, "{number}");
    }
    redis.0.command(&["DEL", &last]);
    let log = format!("{PREFIX}log:revocations");
    for score in ["inf", "1e14"] {
        redis.0.command(&["ZADD", &log, score, "5 9000000000 x"]);
        let error = store.commit(vec![append("new")]).await.unwrap_err();
        assert!(
            matches!(error, StoreError::Unusable(_)) && error.to_string().contains(&log),
            "{score}: {error}"
        );
        redis.0.command(&["ZREM", &log, "5 9000000000 x"]);
    }
    store.commit(vec![append("new")]).await.unwrap();
    let ids = store.since(0).await.unwrap();
    assert_eq!(ids.iter().map(|it| it.id).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn what_was_planted_in_a_set_fails_no_commit_half_way() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.store();
    let session = |id: &str, ends| Change::Put {
        key: Key {
            kind: Kind::Session,
            id: format!("{:-<12}{id}", "ada"),
        },
        expected: None,
        value: "1".to_owned().into(),
        ends: Some(ends),
    };
    let [kind, group] = ["", ":ada---------"].map(|group| format!("{PREFIX}index:session{group}"));
    let ends = format!("{PREFIX}log:revocations:ends");
    for (number, member) in ["", "x", "nan", "-1", "1e400", "0"].into_iter().enumerate() {
        for set in [&kind, &group, &ends] {
            redis.0.command(&["ZADD", set, "1", member]);
            redis
                .0
                .command(&["ZADD", set, "1e300", &format!("{member} ")]);
        }
        let now = store.now().await.unwrap();
        let changes = vec![session(&number.to_string(), now + 100), append("new")];
        assert_eq!(
            store.commit(changes).await,
            Ok(Outcome::Committed),
            "{member}"
        );
        let left = redis.0.command(&["ZRANGE", &ends, "0", "1"]).unwrap();
        assert!(!left.lines().any(|it| it == member), "{left}");
    }
    assert_eq!(store.since(0).await.unwrap().len(), 6);
}

/// A time that Redis rejects is rejected before the record is written.
#[tokio::test]
async fn an_end_beyond_all_times_leaves_no_record() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.store();
    let change = Change::Put {
        key: application("a"),
        expected: None,
        value: "1".to_owned().into(),
        ends: Some(i64::MAX),
    };
    let outcome = store.commit(vec![change]).await;
    assert!(
        matches!(outcome, Err(StoreError::Unavailable(_))),
        "{outcome:?}"
    );
    assert_eq!(store.get(&application("a")).await, Ok(None));
}

#[tokio::test]
async fn what_cannot_be_read_is_not_skipped() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.store();
    store.commit(vec![append("old")]).await.unwrap();
    let log = format!("{PREFIX}log:revocations");
    for (score, entry) in [
        ("2", ""),
        ("2", "x"),
        ("2", "2"),
        ("2", "2 9000000000"),
        ("2", "1e+14 9000000000 x"),
        ("2", "99999999999999999999 9000000000 x"),
        ("2", "2 soon x"),
        ("2", "1 9000000000 x"),
        ("0.5", "2 9000000000 x"),
    ] {
        redis.0.command(&["ZADD", &log, score, entry]);
        let error = store.since(0).await.unwrap_err();
        assert!(
            matches!(error, StoreError::Unusable(_)) && error.to_string().contains(&log),
            "{entry}: {error}"
        );
        redis.0.command(&["ZREM", &log, entry]);
    }
    assert_eq!(store.since(0).await.unwrap().len(), 1);
    let index = format!("{PREFIX}index:application");
    let id = "return redis.call('ZADD', KEYS[1], 'inf', '\\255')";
    redis.0.command(&["EVAL", id, "1", &index]);
    let ids = store.ids(Kind::Application, "").await;
    assert!(matches!(ids, Err(StoreError::Unusable(_))), "{ids:?}");
}

/// The rights to a command on the marks alone: the attempt before the first write succeeds.
#[tokio::test]
async fn a_commit_that_fails_half_way_is_unclear_and_is_named() {
    let Some(redis) = Redis::start() else { return };
    let first = redis.store();
    let first = first.commit(vec![put("a", None, "1"), append("old")]);
    first.await.unwrap();
    for right in ["zrem", "del"] {
        let changes = every_change(&redis.store()).await;
        let command = scripts::commit(&changes).unwrap();
        let of_marks = format!("(+{right} ~{PREFIX}commit:*)");
        let store = store_of_user(&redis, &[&format!("-{right}"), &of_marks]);
        for _ in 0..2 {
            let outcome = store.commit_once(&command).await;
            assert!(
                matches!(outcome, Err(StoreError::Unclear(_)) | Ok(false)),
                "{right}: {outcome:?}"
            );
        }
        let named = store.half_done.lock().clone();
        assert!(
            matches!(named, Some(StoreError::Unclear(_))),
            "{right}: {named:?}"
        );
        assert!(store.check().await.is_err(), "{right}");
        redis.0.command(&["FLUSHALL"]);
        let again = vec![put("a", None, "1"), append("old")];
        redis.store().commit(again).await.unwrap();
    }
}

#[tokio::test]
async fn a_script_that_redis_has_forgotten_is_sent_again() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.store();
    store.check().await.unwrap();
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
