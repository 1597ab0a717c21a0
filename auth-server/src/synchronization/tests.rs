//! Synchronization with a store that comes, goes and changes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod directory;

use self::directory::Directory;
use super::*;
use crate::applications::secret_hash::SecretHashes;
use crate::keys::StoredKeys;
use crate::keys::pair::tests::pair;
use crate::revocations::tests::log_of;
use crate::store::at_rest::AtRest;
use crate::store::envelope_encryption::KeyEncryption;
use crate::store::envelope_encryption::tests::{key, with};

/// The keys of one server.
struct Server {
    store: Directory,
    live_keys: Arc<LiveKeys>,
    registrations: Arc<ApplicationRegistry>,
    health: Health,
    synchronization: Synchronization,
}

impl Server {
    fn new(signing_type: SigningType) -> Self {
        Self::on(Directory::default(), signing_type)
    }

    /// Adds a server to the same store.
    fn on(store: Directory, signing_type: SigningType) -> Self {
        Self::with(store, signing_type, KeyEncryption::default())
    }

    fn with(store: Directory, signing_type: SigningType, encryption: KeyEncryption) -> Self {
        let live_keys = Arc::new(LiveKeys::default());
        let registrations = Arc::new(ApplicationRegistry::new(signing_type == SigningType::Hmac));
        let health = Health::new();
        health.set_started();
        let synchronization = Synchronization::new(
            (store.opened_with(encryption), store.applications()),
            signing_type,
            POLICY,
            SyncedState {
                live_keys: Arc::clone(&live_keys),
                registrations: Arc::clone(&registrations),
                revocations: log_of(store.open()),
                clock: Arc::default(),
                metrics: Metrics::default(),
            },
            &health,
        );
        Self {
            store,
            live_keys,
            registrations,
            health,
            synchronization,
        }
    }

    /// Starts a server with an ecdsa pair, the fastest to generate.
    async fn started() -> Self {
        let mut server = Self::new(TYPE);
        server.synchronization.start().await.unwrap();
        server
    }

    /// Runs one turn of the loop.
    async fn poll(&mut self) {
        self.poll_at(NOW).await;
    }

    async fn poll_at(&mut self, now: i64) {
        self.synchronization.poll(now).await;
    }

    /// Returns the keys as this server would store them.
    fn keys(&self) -> StoredKeys {
        let keys = self.live_keys.published();
        keys.map(|keys| keys.ring().to_stored().unwrap())
            .unwrap_or_default()
    }

    /// Returns the store error in `/readyz`.
    fn note(&self) -> Option<String> {
        let report = self.health.conditions();
        report.into_iter().find_map(|condition| condition.note)
    }

    fn ring(&self) -> KeyRing {
        self.live_keys.published().unwrap().ring().clone()
    }
}

#[tokio::test]
async fn contract_1_an_empty_store_is_filled_and_then_signed_with() {
    let server = Server::started().await;
    assert!(server.keys().pair.is_some());
    assert_eq!(server.keys(), server.store.keys().await);
    assert!(server.health.is_ready());
}

#[tokio::test]
async fn contract_1_a_full_store_is_loaded() {
    let mut server = Server::new(TYPE);
    let theirs = other();
    server.store.put(&theirs).await;
    server.synchronization.start().await.unwrap();
    assert_eq!(server.keys(), theirs);
}

#[tokio::test]
async fn a_store_that_is_away_stops_no_start_and_nothing_signs() {
    let mut server = Server::new(TYPE);
    server.store.set_away(true);
    server.synchronization.start().await.unwrap();
    server.poll().await;
    assert_eq!(server.keys(), StoredKeys::default());
    assert!(!server.health.is_ready());

    server.store.set_away(false);
    server.poll().await;
    assert_eq!(server.keys(), server.store.keys().await);
    assert!(server.health.is_ready());
}

#[tokio::test]
async fn an_unusable_pair_at_the_start_is_for_the_operator() {
    let of_another_type = KeyRing::of(Arc::new(pair(SigningType::Hmac)));
    for bad in [mixed(), of_another_type.to_stored().unwrap()] {
        let mut server = Server::new(TYPE);
        server.store.put(&bad).await;
        let failure = server.synchronization.start().await.unwrap_err();
        assert!(matches!(&failure, StoreError::Unusable(line) if line.starts_with("Store: ")));
        assert_eq!(
            (server.keys(), server.store.keys().await),
            (StoredKeys::default(), bad)
        );
    }
}

#[tokio::test]
async fn later_it_is_neither_used_nor_overwritten_and_memory_goes_on() {
    let mut server = Server::started().await;
    let mine = server.keys();
    server.store.put(&mixed()).await;
    server.poll().await;
    assert_eq!(server.keys(), mine);
    assert!(server.store.keys().await != mine);
    assert!(server.health.is_ready(), "all servers would go at once");
    assert!(server.note().unwrap().starts_with("Store: "));

    server.store.put(&mine).await;
    server.poll().await;
    assert!(server.health.is_ready());
    assert_eq!(server.note(), None);
}

#[tokio::test]
async fn with_a_key_in_memory_a_store_that_is_away_changes_readyz() {
    let mut server = Server::started().await;
    let mine = server.keys();
    server.store.set_away(true);
    server.poll().await;
    assert_eq!(server.keys(), mine);
    assert!(server.health.is_ready());
    assert_eq!(server.note().as_deref(), Some("away"));
}

#[tokio::test]
async fn a_store_unusable_before_the_first_key_is_not_ready() {
    let mut server = Server::new(TYPE);
    server.store.set_away(true);
    server.synchronization.start().await.unwrap();
    server.store.set_away(false);
    server.store.put(&mixed()).await;
    server.poll().await;
    assert!(!server.health.is_ready());
    let reasons: Vec<_> = server
        .health
        .conditions()
        .into_iter()
        .map(|it| it.reason)
        .collect();
    assert!(
        matches!(&reasons[..], [None, Some(store)] if store.starts_with("Store: ")),
        "{reasons:?}"
    );
    assert_eq!(server.note(), None);
}

#[tokio::test]
async fn lost_applications_are_put_back_before_anything_is_open() {
    let mut server = Server::started().await;
    server.store.register().await;
    server.poll().await;
    server.store.lose_everything();
    server.poll().await;
    let there = server.store.applications().read().await.unwrap();
    assert!(there.accepts("orders", "right"));
    assert!(server.registrations.authorize("any", "pair").is_err());
    assert_eq!(server.keys(), server.store.keys().await);
}

#[tokio::test]
async fn servers_agree_on_the_later_record_of_an_application() {
    let mut one = Server::started().await;
    let applications = one.store.clone();
    let mut two = Server::on(applications.clone(), TYPE);
    let first = SecretHashes::of("first");
    let (known, other) = (first.with_new("known"), first.with_new("other"));
    applications.put_record(&known).await;
    one.poll().await;
    for (copy, counts, lost) in [(&first, "known", "other"), (&other, "other", "known")] {
        applications.put_record(copy).await;
        two.poll().await;
        one.poll().await;
        two.poll().await;
        let settled = applications.version().await;
        one.poll().await;
        two.poll().await;
        assert_eq!(applications.version().await, settled, "no one writes again");
        for server in [&one, &two] {
            let accepts = server.registrations.authorize("orders", counts);
            assert_eq!(accepts, Ok(()), "{counts}");
            let rejected = server.registrations.authorize("orders", lost);
            assert!(rejected.is_err(), "{lost}");
        }
    }
}

#[tokio::test]
async fn a_bad_record_of_an_application_stops_nothing_but_itself() {
    let mut server = Server::new(TYPE);
    server.store.put_application("orders", Some("1")).await;
    server.synchronization.start().await.unwrap();
    let old = server.ring();
    let id = old.current().id().clone();
    let revoked = old.revoke(&id, Some(&fresh()), NOW).unwrap();
    let revoked = server.store.put_ring(revoked).await;
    server.poll().await;
    assert_eq!(server.ring(), revoked);
    assert!(server.note().unwrap().contains("orders"));
    assert!(server.registrations.authorize("any", "pair").is_err());
    server.store.lose_application().await;
    server.poll().await;
    assert!(server.registrations.authorize("any", "pair").is_err());
    assert!(server.note().unwrap().contains("orders"));
    server.store.register().await;
    server.poll().await;
    assert_eq!(server.note(), None);
}

#[tokio::test]
async fn hmac_makes_no_secret_before_an_application_is_registered() {
    let mut server = Server::new(SigningType::Hmac);
    let failure = server.synchronization.start().await.unwrap_err();
    assert!(
        failure
            .to_string()
            .contains("auth-server application add --store Store"),
        "{failure}"
    );
    server.poll().await;
    let nothing = StoredKeys::default;
    assert_eq!(
        (server.keys(), server.store.keys().await),
        (nothing(), nothing())
    );

    server.store.register().await;
    server.poll().await;
    assert_eq!(server.keys(), server.store.keys().await);
    assert!(server.keys().pair.is_some());
}

#[tokio::test]
async fn a_key_signs_on_time_though_the_store_is_away() {
    let mut server = Server::started().await;
    let announced = server.ring().publish(fresh(), NOW, POLICY.lead);
    let new = announced.next().unwrap().pair.id().clone();
    let announced = server.store.put_ring(announced).await;
    server.poll().await;

    server.store.set_away(true);
    server.poll_at(NOW + POLICY.lead).await;
    assert_eq!(server.ring().current().id(), &new);

    server.store.set_away(false);
    assert_eq!(server.store.ring().await, announced);
    server.poll_at(NOW + POLICY.lead + 9).await;
    assert_eq!(server.store.ring().await.current().id(), &new);
    assert_eq!(server.keys(), server.store.keys().await);
}

#[tokio::test]
async fn keys_go_by_the_clock_of_the_store() {
    const TEN_YEARS: i64 = 315_360_000;
    let mut server = Server::started().await;
    let announced = server.ring().publish(fresh(), NOW, POLICY.lead);
    let announced = server.store.put_ring(announced).await;
    server.store.set_ahead(-TEN_YEARS);
    server.poll_at(NOW + TEN_YEARS).await;
    assert_eq!(server.store.ring().await, announced);
    let due = server.synchronization.next_due().unwrap();
    assert!((due - TEN_YEARS - NOW - POLICY.lead).abs() < 10, "{due}");

    server.poll_at(NOW + TEN_YEARS + POLICY.lead + 10).await;
    let next = &announced.next().unwrap().pair;
    assert_eq!(server.ring().current(), next);
    let since = server.store.ring().await.current_since().unwrap();
    assert!((since - NOW - POLICY.lead).abs() < 30, "{since}");
}

/// The first server with a key-encryption key takes nothing away from one that has none yet.
#[tokio::test]
async fn a_server_without_a_key_goes_on_until_the_store_is_encrypted() {
    let mut plain = Server::started().await;
    let store = plain.store.clone();
    let mut keyed = Server::with(store.clone(), TYPE, with(1));
    keyed.poll().await;
    let records = store.opened_with(with(1));
    let held = records.read().await.unwrap();
    let announced = keyed.ring().publish(fresh(), NOW, POLICY.lead);
    let announced = announced.in_next_generation(1).to_stored().unwrap();
    assert_eq!(records.commit(&held, &announced).await, Ok(true));
    keyed.poll().await;
    plain.poll().await;
    assert_eq!(plain.note(), None);
    assert_eq!((plain.keys(), keyed.keys()), (announced.clone(), announced));
    let held = records.read().await.unwrap();
    let encrypted = AtRest::Encrypted(key(1).id().to_owned());
    let done = records.rewrite(&encrypted, &held, &held.keys).await;
    assert_eq!(done, Ok(true));
    plain.poll().await;
    assert!(!plain.health.is_ready(), "it misses what follows");
    let reasons = plain.health.conditions();
    let reasons: Vec<_> = reasons.into_iter().filter_map(|it| it.reason).collect();
    assert!(
        reasons.iter().all(|it| it.contains(key(1).id())),
        "{reasons:?}"
    );
    keyed.poll().await;
    assert!(keyed.health.is_ready());
}

const TYPE: SigningType = SigningType::Ecdsa;
const NOW: i64 = 1_000_000;
const POLICY: RotationPolicy = RotationPolicy {
    lead: 150,
    keep: 18_060,
    every: None,
};

fn fresh() -> Arc<SigningKeyPair> {
    Arc::new(pair(TYPE))
}

fn other() -> StoredKeys {
    KeyRing::of(fresh()).to_stored().unwrap()
}

fn mixed() -> StoredKeys {
    let (mut one, two) = (other(), other());
    if let (Some(one), Some(two)) = (&mut one.pair, two.pair) {
        one.public = two.public;
    }
    one
}
