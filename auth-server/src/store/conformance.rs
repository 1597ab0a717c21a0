//! Conformance suite: rules that every store passes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod installations;
pub(crate) mod unsteady;

use tokio::task::JoinSet;
use zeroize::Zeroizing;

use self::installations::{Installation, Memory, Simulated, Topology};
use super::{Change, Key, Kind, LogEntry, NewEntry, Outcome, Store, Version};

/// Makes one test of each rule for each kind of store; with a name in front also a function of all
/// rules, where a store takes long to start.
macro_rules! for_every_store {
    ($all:ident: $($rule:ident),+ $(,)?) => {
        $crate::store::conformance::for_every_store!($($rule),+);
        async fn $all(installation: &dyn Installation) {
            $(
                installation.clear().await;
                $rule(installation).await;
            )+
        }
    };
    ($($rule:ident),+ $(,)?) => {
        mod sqlite {
            use $crate::store::conformance::installations::Files;

            $(#[tokio::test] async fn $rule() { super::$rule(&Files::new()).await; })+
        }
        mod redis {
            use $crate::store::conformance::installations::Redis;

            $(#[tokio::test] async fn $rule() {
                if let Some(redis) = Redis::start() { super::$rule(&redis).await; }
            })+
        }
    };
}
pub(crate) use for_every_store;

for_every_store!(every_rule:
    an_empty_store_holds_nothing,
    a_record_is_replaced_only_by_who_knows_what_is_there,
    a_commit_makes_all_changes_or_none,
    a_version_is_of_one_value,
    a_check_expects_a_version_and_changes_nothing,
    a_record_is_absent_from_its_end_on,
    a_check_leaves_no_record_and_no_entry,
    the_ids_of_a_kind_and_its_records_come_in_order,
    the_ids_of_a_group_come_in_the_order_of_their_ends,
    a_log_is_read_from_a_cursor_and_keeps_its_order,
    what_is_over_or_removed_leaves_a_log_but_for_the_last_id,
    of_many_who_change_a_record_at_once_each_is_counted,
);

#[tokio::test]
async fn a_store_in_memory_follows_every_rule() {
    every_rule(&Memory::new()).await;
}

#[tokio::test]
async fn the_simulated_store_follows_every_rule() {
    every_rule(&Simulated::new()).await;
}

#[tokio::test]
async fn redis_over_tls_follows_every_rule() {
    if let Some(redis) = Topology::tls() {
        every_rule(&redis).await;
    }
}

#[tokio::test]
async fn redis_behind_sentinels_follows_every_rule() {
    if let Some(redis) = Topology::watched() {
        every_rule(&redis).await;
    }
}

#[tokio::test]
async fn a_redis_cluster_follows_every_rule() {
    if let Some(redis) = Topology::cluster() {
        every_rule(&redis).await;
    }
}

async fn an_empty_store_holds_nothing(installation: &dyn Installation) {
    let store = installation.open();
    assert_eq!(store.get(&application("a")).await, Ok(None));
    assert_eq!(store.ids(Kind::Application, "").await, Ok(Vec::new()));
    assert_eq!(store.since(0).await, Ok(Vec::new()));
}

pub(crate) fn application(id: &str) -> Key {
    Key {
        kind: Kind::Application,
        id: id.to_owned(),
    }
}

pub(crate) fn put(id: &str, expected: Option<&Version>, value: &str) -> Change {
    Change::Put {
        key: application(id),
        expected: expected.cloned(),
        value: Zeroizing::new(value.to_owned()),
        ends: None,
    }
}

fn append(value: &str, ends: i64) -> Change {
    Change::Append(NewEntry {
        value: value.to_owned(),
        ends,
        above: 0,
    })
}

async fn version(store: &dyn Store, id: &str) -> Option<Version> {
    let held = store.get(&application(id)).await.unwrap();
    held.map(|held| held.version)
}

async fn value(store: &dyn Store, id: &str) -> Option<String> {
    let held = store.get(&application(id)).await.unwrap();
    held.map(|held| held.value.to_string())
}

async fn a_record_is_replaced_only_by_who_knows_what_is_there(installation: &dyn Installation) {
    let (one, other) = (installation.open(), installation.open());
    assert_eq!(
        one.commit(vec![put("a", None, "1")]).await,
        Ok(Outcome::Committed)
    );
    let first = version(&*other, "a").await;
    for (expected, new, outcome) in [
        (None, "2", Outcome::Conflict),
        (first.clone(), "2", Outcome::Committed),
        (first, "3", Outcome::Conflict),
    ] {
        let change = put("a", expected.as_ref(), new);
        assert_eq!(other.commit(vec![change]).await, Ok(outcome));
    }
    assert_eq!(value(&*one, "a").await.as_deref(), Some("2"));
}

async fn a_commit_makes_all_changes_or_none(installation: &dyn Installation) {
    let store = installation.open();
    store.commit(vec![put("a", None, "1")]).await.unwrap();
    let held = version(&*store, "a").await;
    let end = store.now().await.unwrap() + 1000;
    let changes = |expected: Option<&Version>| {
        vec![
            put("b", None, "new"),
            append("entry", end),
            put("a", expected, "2"),
        ]
    };
    assert_eq!(store.commit(changes(None)).await, Ok(Outcome::Conflict));
    assert_eq!(value(&*store, "b").await, None);
    assert_eq!(store.since(0).await, Ok(Vec::new()));
    let done = store.commit(changes(held.as_ref())).await;
    assert_eq!(done, Ok(Outcome::Committed));
    assert_eq!(value(&*store, "b").await.as_deref(), Some("new"));
    assert_eq!(store.since(0).await.unwrap().len(), 1);
}

async fn a_version_is_of_one_value(installation: &dyn Installation) {
    let store = installation.open();
    store.commit(vec![put("a", None, "1")]).await.unwrap();
    let first = version(&*store, "a").await.unwrap();
    let delete = || Change::Delete {
        key: application("a"),
        expected: first.clone(),
    };
    let deleted = store.commit(vec![delete()]).await;
    assert_eq!(deleted, Ok(Outcome::Committed));
    assert_eq!(store.commit(vec![delete()]).await, Ok(Outcome::Conflict));
    store.commit(vec![put("a", None, "2")]).await.unwrap();
    assert_eq!(store.commit(vec![delete()]).await, Ok(Outcome::Conflict));
    assert_eq!(value(&*store, "a").await.as_deref(), Some("2"));
}

async fn a_check_expects_a_version_and_changes_nothing(installation: &dyn Installation) {
    let store = installation.open();
    store.commit(vec![put("a", None, "1")]).await.unwrap();
    let there = version(&*store, "a").await;
    for (id, expected, outcome) in [
        ("a", None, Outcome::Conflict),
        ("none", there.clone(), Outcome::Conflict),
        ("a", there, Outcome::Committed),
        ("none", None, Outcome::Committed),
    ] {
        let key = application(id);
        let beside = put("b", version(&*store, "b").await.as_ref(), "2");
        let done = store
            .commit(vec![beside, Change::Check { key, expected }])
            .await;
        assert_eq!(done, Ok(outcome), "{id}");
    }
    assert_eq!(value(&*store, "a").await.as_deref(), Some("1"));
    assert_eq!(value(&*store, "none").await, None);
}

async fn a_record_is_absent_from_its_end_on(installation: &dyn Installation) {
    let store = installation.open();
    let now = store.now().await.unwrap();
    let ending = |id: &str, ends| Change::Put {
        key: application(id),
        expected: None,
        value: Zeroizing::new("1".to_owned()),
        ends: Some(ends),
    };
    for (id, ends) in [("over", now), ("there", now + 1000)] {
        let done = store.commit(vec![ending(id, ends)]).await;
        assert_eq!(done, Ok(Outcome::Committed));
    }
    assert_eq!(value(&*store, "over").await, None);
    let listed = store.ids(Kind::Application, "").await.unwrap();
    assert_eq!(listed, ["there"]);
    let again = store.commit(vec![ending("over", now + 1000)]).await;
    assert_eq!(again, Ok(Outcome::Committed));
}

async fn a_check_leaves_no_record_and_no_entry(installation: &dyn Installation) {
    let store = installation.open();
    for _ in 0..2 {
        assert_eq!(store.check().await, Ok(()));
        for kind in Kind::ALL {
            assert_eq!(store.ids(kind, "").await, Ok(Vec::new()));
        }
        assert_eq!(store.since(0).await, Ok(Vec::new()));
    }
}

async fn the_ids_of_a_kind_and_its_records_come_in_order(installation: &dyn Installation) {
    let store = installation.open();
    let other = Change::Put {
        key: Key {
            kind: Kind::Session,
            id: "a".to_owned(),
        },
        expected: None,
        value: Zeroizing::new(String::new()),
        ends: None,
    };
    let changes = vec![put("b", None, "2"), other, put("a", None, "")];
    store.commit(changes).await.unwrap();
    let ids = store.ids(Kind::Application, "").await.unwrap();
    assert_eq!(ids, ["a", "b"]);
    let read = store.read(&["a", "none", "b"].map(application)).await;
    let read = read.unwrap().into_iter();
    let values: Vec<_> = read.map(|held| Some(held?.value.to_string())).collect();
    assert_eq!(values, [Some(String::new()), None, Some("2".to_owned())]);
}

async fn the_ids_of_a_group_come_in_the_order_of_their_ends(installation: &dyn Installation) {
    let store = installation.open();
    let now = store.now().await.unwrap();
    let id = |user: &str, name: &str| format!("{user:-<12}{name}");
    let begin = |id: String, ends| Change::Put {
        key: Key {
            kind: Kind::Session,
            id,
        },
        expected: None,
        value: Zeroizing::default(),
        ends: Some(ends),
    };
    for (user, name, ends) in [
        ("ada", "a", 90),
        ("ada", "b", 80),
        ("eve", "c", 70),
        ("ada", "d", 0),
    ] {
        let begun = begin(id(user, name), now + ends);
        store.commit(vec![begun]).await.unwrap();
    }
    let ids = async |group: &str| store.ids(Kind::Session, group).await.unwrap();
    let of_ada = [id("ada", "b"), id("ada", "a")];
    assert_eq!(ids(&id("ada", "")).await, of_ada);
    let all = [id("eve", "c"), id("ada", "b"), id("ada", "a")];
    assert_eq!(ids("").await, all);
    let key = Key {
        kind: Kind::Session,
        id: id("ada", "b"),
    };
    let held = store.get(&key).await.unwrap().unwrap();
    let delete = Change::Delete {
        key,
        expected: held.version,
    };
    store.commit(vec![delete]).await.unwrap();
    assert_eq!(ids(&id("ada", "")).await, [id("ada", "a")]);
    assert_eq!(ids(&id("bob", "")).await, [""; 0]);
}

async fn a_log_is_read_from_a_cursor_and_keeps_its_order(installation: &dyn Installation) {
    let (one, other) = (installation.open(), installation.open());
    let end = one.now().await.unwrap() + 1000;
    let changes = vec![append("a", end), append("over", 1), append("b", end)];
    one.commit(changes).await.unwrap();
    let first = other.since(0).await.unwrap();
    let values: Vec<_> = first.iter().map(|entry| entry.value.as_str()).collect();
    assert_eq!(values.last(), Some(&"b"));
    let cursor = first.last().unwrap().id;
    other.commit(vec![append("c", end)]).await.unwrap();
    let later = one.since(cursor).await.unwrap();
    assert_eq!(later.len(), 1);
    assert!(later[0].id > cursor);
}

async fn what_is_over_or_removed_leaves_a_log_but_for_the_last_id(installation: &dyn Installation) {
    let store = installation.open();
    let end = store.now().await.unwrap() + 1000;
    let values = async || {
        let entries = store.since(0).await.unwrap();
        let values = entries.iter().map(|entry| entry.value.clone());
        (values.collect::<Vec<_>>(), entries.last().map(|it| it.id))
    };
    for value in ["a", "b", "c"] {
        store.commit(vec![append(value, end)]).await.unwrap();
    }
    let read = store.since(0).await.unwrap();
    let ids: Vec<i64> = read.iter().map(|entry| entry.id).collect();
    let other = LogEntry {
        value: "x".to_owned(),
        ..read[1].clone()
    };
    for (expected, outcome) in [
        (other, Outcome::Conflict),
        (read[1].clone(), Outcome::Committed),
    ] {
        // Without ids it only compares.
        for ids in [vec![], vec![ids[0], ids[2], 999]] {
            let beside = put("a", version(&*store, "a").await.as_ref(), "1");
            let expected = expected.clone();
            let remove = Change::Remove { ids, expected };
            assert_eq!(store.commit(vec![remove, beside]).await, Ok(outcome));
        }
    }
    assert_eq!(values().await, (vec!["b".into(), "c".into()], Some(ids[2])));
    let above = |value: &str, above| {
        let Change::Append(entry) = append(value, 1) else {
            unreachable!("an entry")
        };
        Change::Append(NewEntry { above, ..entry })
    };
    store.commit(vec![above("over", 5000)]).await.unwrap();
    let all = ["b", "c", "over"].map(str::to_owned);
    assert_eq!(values().await, (all.to_vec(), Some(5001)));
    store.commit(vec![above("over", 0)]).await.unwrap();
    assert_eq!(values().await, (all.to_vec(), Some(5002)));
}

async fn of_many_who_change_a_record_at_once_each_is_counted(installation: &dyn Installation) {
    const WRITERS: u32 = 8;
    let first = installation.open();
    first.commit(vec![put("a", None, "0")]).await.unwrap();
    let mut writers = JoinSet::new();
    for store in (0..WRITERS).map(|_| installation.open()) {
        writers.spawn(async move {
            loop {
                let held = store.get(&application("a")).await.unwrap().unwrap();
                let next = held.value.parse::<u32>().unwrap() + 1;
                let change = put("a", Some(&held.version), &next.to_string());
                if store.commit(vec![change]).await.unwrap() == Outcome::Committed {
                    break;
                }
            }
        });
    }
    writers.join_all().await;
    assert_eq!(value(&*first, "a").await, Some(WRITERS.to_string()));
}
