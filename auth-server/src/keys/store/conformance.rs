//! What every store has to do, run against each of them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(super) mod installations;

use std::sync::Arc;

use tokio::task::JoinSet;
use zeroize::Zeroizing;

use self::installations::{Files, Installation, Redis};
use super::{Entry, KeyStore, StoreError};
use crate::applications::Applications;
use crate::applications::secret_hash::SecretHashes;
use crate::keys::{Half, StoredKeyPair};

/// One test per rule and store.
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
    };
}

for_every_store!(
    an_empty_store_holds_nothing,
    the_first_candidate_is_installed_and_every_later_one_gets_it,
    contract_1_half_a_pair_is_no_pair_and_both_halves_are_written,
    a_whole_pair_is_never_overwritten_even_if_it_is_none_to_us,
    many_servers_at_the_same_instant_end_with_one_pair,
    applications_are_kept_with_the_key_and_a_taken_id_stays,
    unreadable_applications_are_unusable_and_named,
    every_place_has_its_own_name,
);

/// Strings as long and as many-lined as real ones; what they mean is not the store's business.
fn pair(name: &str) -> StoredKeyPair {
    let text =
        |half: &str| Zeroizing::new(format!("-----{name} {half}-----\n{}\n", name.repeat(400)));
    StoredKeyPair {
        private: text("private"),
        public: text("public"),
    }
}

async fn an_empty_store_holds_nothing(installation: &dyn Installation) {
    let store = installation.open();
    assert_eq!(store.load().await, Ok(None));
    assert_eq!(store.applications().await, Ok(Applications::default()));
}

async fn the_first_candidate_is_installed_and_every_later_one_gets_it(
    installation: &dyn Installation,
) {
    let (first, second) = (installation.open(), installation.open());
    assert_eq!(first.adopt_or_install(&pair("a")).await, Ok(pair("a")));
    assert_eq!(second.adopt_or_install(&pair("b")).await, Ok(pair("a")));
    assert_eq!(first.adopt_or_install(&pair("c")).await, Ok(pair("a")));
    assert_eq!(second.load().await, Ok(Some(pair("a"))));
}

async fn contract_1_half_a_pair_is_no_pair_and_both_halves_are_written(
    installation: &dyn Installation,
) {
    let store = installation.open();
    for (name, lost) in [("a", Half::Private), ("b", Half::Public)] {
        installation.plant(Half::Private, "left over").await;
        installation.plant(Half::Public, "left over").await;
        installation.lose(lost).await;
        assert_eq!(store.load().await, Ok(None));
        assert_eq!(store.adopt_or_install(&pair(name)).await, Ok(pair(name)));
        assert_eq!(store.load().await, Ok(Some(pair(name))));
    }
}

async fn a_whole_pair_is_never_overwritten_even_if_it_is_none_to_us(
    installation: &dyn Installation,
) {
    let store = installation.open();
    for (private, public) in [("of one", "of another"), ("", ""), ("x", "")] {
        installation.plant(Half::Private, private).await;
        installation.plant(Half::Public, public).await;
        let there = StoredKeyPair {
            private: Zeroizing::new(private.to_owned()),
            public: Zeroizing::new(public.to_owned()),
        };
        assert_eq!(store.adopt_or_install(&pair("a")).await, Ok(there.clone()));
        assert_eq!(store.load().await, Ok(Some(there)));
    }
}

async fn many_servers_at_the_same_instant_end_with_one_pair(installation: &dyn Installation) {
    for round in 0..20 {
        // Every other round half a pair is there: where naive ways of doing it mix pairs.
        match round % 4 {
            1 => installation.lose(Half::Private).await,
            3 => installation.lose(Half::Public).await,
            _ => {
                installation.lose(Half::Private).await;
                installation.lose(Half::Public).await;
            }
        }
        let winners = race(installation, 8, round).await;
        let stored = installation.open().load().await.unwrap().unwrap();
        assert!(
            winners.iter().all(|winner| *winner == stored),
            "round {round}"
        );
        assert!(
            (0..8).any(|n| pair(&format!("{round}-{n}")) == stored),
            "round {round}: a mixed pair"
        );
    }
}

async fn race(installation: &dyn Installation, servers: u32, round: u32) -> Vec<StoredKeyPair> {
    let mut racing = JoinSet::new();
    for n in 0..servers {
        let store = installation.open();
        racing.spawn(async move { store.adopt_or_install(&pair(&format!("{round}-{n}"))).await });
    }
    racing
        .join_all()
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

async fn applications_are_kept_with_the_key_and_a_taken_id_stays(installation: &dyn Installation) {
    let (server, command) = (installation.open(), installation.open());
    server.adopt_or_install(&pair("a")).await.unwrap();
    let (orders, stock) = ("orders".parse().unwrap(), "größe".parse().unwrap());
    assert_eq!(
        command
            .add_application(&orders, &SecretHashes::of("first"))
            .await,
        Ok(true)
    );
    assert_eq!(
        command
            .add_application(&stock, &SecretHashes::of("s"))
            .await,
        Ok(true)
    );
    assert_eq!(
        command
            .add_application(&orders, &SecretHashes::of("second"))
            .await,
        Ok(false)
    );

    let applications = server.applications().await.unwrap();
    assert_eq!(applications.iter().count(), 2);
    assert!(applications.admits("orders", "first"));
    assert!(applications.admits("größe", "s"));
    assert!(!applications.admits("orders", "second"));
    assert_eq!(server.load().await, Ok(Some(pair("a"))));
}

async fn unreadable_applications_are_unusable_and_named(installation: &dyn Installation) {
    let store = installation.open();
    installation
        .plant_application("orders", "not a record")
        .await;
    let Err(StoreError::Unusable(line)) = store.applications().await else {
        unreachable!("an unreadable record was read")
    };
    assert!(
        line.contains(&store.whereabouts(Entry::Applications)),
        "{line}"
    );
}

async fn every_place_has_its_own_name(installation: &dyn Installation) {
    let store: Arc<dyn KeyStore> = installation.open();
    let entries = [
        Entry::Store,
        Entry::KeyPair,
        Entry::Half(Half::Private),
        Entry::Half(Half::Public),
        Entry::Applications,
    ];
    let places = entries.map(|entry| store.whereabouts(entry));
    let distinct: std::collections::BTreeSet<_> = places.iter().collect();
    assert_eq!(distinct.len(), places.len(), "{places:?}");
}
