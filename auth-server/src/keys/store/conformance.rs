//! Conformance suite: rules that every store passes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(super) mod installations;

use std::sync::Arc;

use tokio::task::JoinSet;
use zeroize::Zeroizing;

use self::installations::{Files, Installation, Redis, Topology};
use super::{Entry, KeyStore};
use crate::keys::{Half, StoredKeyPair, StoredKeys, StoredRing};

/// Makes one test per rule and store, or one for all rules where a store takes long to start.
macro_rules! for_every_store {
    ($($rule:ident),+ $(,)?) => {
        mod file {
            $(#[tokio::test] async fn $rule() { super::$rule(&super::Files::new()).await; })+
        }
        mod redis {
            $(#[tokio::test] async fn $rule() {
                if let Some(redis) = super::Redis::start() { super::$rule(&redis).await; }
            })+
        }
        mod encrypted_file {
            $(#[tokio::test] async fn $rule() {
                super::$rule(&super::Files::new().encrypted()).await;
            })+
        }
        mod encrypted_redis {
            $(#[tokio::test] async fn $rule() {
                if let Some(redis) = super::Redis::start() {
                    super::$rule(&redis.encrypted()).await;
                }
            })+
        }
        async fn every_rule(installation: &dyn Installation) {
            $(
                installation.clear().await;
                $rule(installation).await;
            )+
        }
    };
}

for_every_store!(
    an_empty_store_holds_nothing,
    the_first_candidate_is_installed_and_every_later_one_gets_it,
    keys_change_only_where_pair_and_ring_are_the_expected_ones,
    contract_1_half_a_pair_is_missing_and_both_are_written,
    a_whole_pair_is_never_overwritten_even_if_unusable,
    a_ring_without_a_pair_is_seen_and_kept,
    many_servers_at_the_same_instant_end_with_one_pair,
    many_servers_that_rotate_at_the_same_instant_do_it_once,
    every_location_has_its_own_name,
);

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

/// Returns strings as long and as many-lined as real keys.
fn keys(name: &str) -> StoredKeys {
    let text =
        |half: &str| Zeroizing::new(format!("-----{name} {half}-----\n{}\n", name.repeat(400)));
    StoredKeys {
        pair: Some(StoredKeyPair {
            private: text("private"),
            public: text("public"),
        }),
        ring: Some(StoredRing(text("ring"))),
    }
}

fn without_ring(keys: StoredKeys) -> StoredKeys {
    StoredKeys { ring: None, ..keys }
}

fn planted(private: &str, public: &str) -> StoredKeys {
    let text = |text: &str| Zeroizing::new(text.to_owned());
    StoredKeys {
        pair: Some(StoredKeyPair {
            private: text(private),
            public: text(public),
        }),
        ring: None,
    }
}

const PRIVATE: Entry = Entry::Half(Half::Private);
const PUBLIC: Entry = Entry::Half(Half::Public);
const NOTHING: StoredKeys = StoredKeys {
    pair: None,
    ring: None,
};

async fn an_empty_store_holds_nothing(installation: &dyn Installation) {
    let store = installation.open();
    assert_eq!(store.load().await, Ok(NOTHING));
}

async fn the_first_candidate_is_installed_and_every_later_one_gets_it(
    installation: &dyn Installation,
) {
    let (first, second) = (installation.open(), installation.open());
    let (a, b) = (without_ring(keys("a")), keys("b"));
    assert_eq!(first.compare_and_swap(&NOTHING, &a).await, Ok(a.clone()));
    assert_eq!(second.compare_and_swap(&NOTHING, &b).await, Ok(a.clone()));
    assert_eq!(first.compare_and_swap(&NOTHING, &b).await, Ok(a.clone()));
    assert_eq!(second.load().await, Ok(a));
}

async fn keys_change_only_where_pair_and_ring_are_the_expected_ones(
    installation: &dyn Installation,
) {
    let store = installation.open();
    let (a, b) = (keys("a"), keys("b"));
    assert_eq!(store.compare_and_swap(&NOTHING, &a).await, Ok(a.clone()));
    let other_ring = StoredKeys {
        ring: b.ring.clone(),
        ..a.clone()
    };
    let other_pair = StoredKeys {
        pair: b.pair.clone(),
        ..a.clone()
    };
    for expected in [
        &NOTHING,
        &b,
        &without_ring(a.clone()),
        &other_ring,
        &other_pair,
    ] {
        assert_eq!(store.compare_and_swap(expected, &b).await, Ok(a.clone()));
    }
    let mut there = a;
    for new in [other_ring, b.clone(), without_ring(b), NOTHING] {
        assert_eq!(store.compare_and_swap(&there, &new).await, Ok(new.clone()));
        assert_eq!(store.load().await, Ok(new.clone()));
        there = new;
    }
}

async fn contract_1_half_a_pair_is_missing_and_both_are_written(installation: &dyn Installation) {
    let store = installation.open();
    for (name, lost) in [("a", PRIVATE), ("b", PUBLIC)] {
        installation.plant(PRIVATE, "left over").await;
        installation.plant(PUBLIC, "left over").await;
        installation.lose(lost).await;
        installation.lose(Entry::Ring).await;
        assert_eq!(store.load().await, Ok(NOTHING));
        let new = keys(name);
        assert_eq!(
            store.compare_and_swap(&NOTHING, &new).await,
            Ok(new.clone())
        );
        assert_eq!(store.load().await, Ok(new));
    }
}

async fn a_ring_without_a_pair_is_seen_and_kept(installation: &dyn Installation) {
    let store = installation.open();
    installation.plant(Entry::Ring, "of a lost pair").await;
    installation.plant(PUBLIC, "left over").await;
    let alone = store.load().await.unwrap();
    assert!(alone.pair.is_none() && alone.ring.is_some());
    let new = keys("a");
    assert_eq!(
        store.compare_and_swap(&NOTHING, &new).await,
        Ok(alone.clone())
    );
    assert_eq!(store.compare_and_swap(&alone, &new).await, Ok(new));
}

async fn a_whole_pair_is_never_overwritten_even_if_unusable(installation: &dyn Installation) {
    let store = installation.open();
    for (private, public) in [("of one", "of another"), ("", ""), ("x", "")] {
        installation.plant(PRIVATE, private).await;
        installation.plant(PUBLIC, public).await;
        let there = planted(private, public);
        let swapped = store.compare_and_swap(&NOTHING, &keys("a")).await;
        assert_eq!(swapped, Ok(there.clone()));
        assert_eq!(store.load().await, Ok(there));
    }
}

async fn many_servers_at_the_same_instant_end_with_one_pair(installation: &dyn Installation) {
    for round in 0..20 {
        installation.lose(Entry::Ring).await;
        // Every other round starts with half a pair, where naive implementations mix pairs.
        match round % 4 {
            1 => installation.lose(PRIVATE).await,
            3 => installation.lose(PUBLIC).await,
            _ => {
                installation.lose(PRIVATE).await;
                installation.lose(PUBLIC).await;
            }
        }
        assert_one_winner(installation, &NOTHING, round).await;
    }
}

async fn many_servers_that_rotate_at_the_same_instant_do_it_once(installation: &dyn Installation) {
    let mut there = keys("start");
    let store = installation.open();
    store.compare_and_swap(&NOTHING, &there).await.unwrap();
    for round in 0..20 {
        there = assert_one_winner(installation, &there, round).await;
    }
}

async fn assert_one_winner(
    installation: &dyn Installation,
    expected: &StoredKeys,
    round: u32,
) -> StoredKeys {
    let winners = race(installation, expected, 8, round).await;
    let stored = installation.open().load().await.unwrap();
    assert!(
        winners.iter().all(|winner| *winner == stored),
        "round {round}"
    );
    assert!(
        (0..8).any(|n| keys(&format!("{round}-{n}")) == stored),
        "round {round}: a mixture"
    );
    stored
}

async fn race(
    installation: &dyn Installation,
    expected: &StoredKeys,
    servers: u32,
    round: u32,
) -> Vec<StoredKeys> {
    let mut racing = JoinSet::new();
    for n in 0..servers {
        let (store, expected) = (installation.open(), expected.clone());
        let mine = keys(&format!("{round}-{n}"));
        racing.spawn(async move { store.compare_and_swap(&expected, &mine).await });
    }
    racing
        .join_all()
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

async fn every_location_has_its_own_name(installation: &dyn Installation) {
    let store: Arc<dyn KeyStore> = installation.open();
    let entries = [
        Entry::Store,
        Entry::KeyPair,
        Entry::Half(Half::Private),
        Entry::Half(Half::Public),
        Entry::Ring,
    ];
    let locations = entries.map(|entry| store.location(entry));
    let distinct: std::collections::BTreeSet<_> = locations.iter().collect();
    assert_eq!(distinct.len(), locations.len(), "{locations:?}");
}
