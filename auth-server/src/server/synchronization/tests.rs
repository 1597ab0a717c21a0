//! Synchronization with a store that comes, goes and changes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod directory;

use postern_token::claims::Claims;
use postern_token::keys::signing_type::SigningType;

use self::directory::{Directory, orders};
use super::*;
use crate::accounts::applications::secret_hash::SecretHashes;
use crate::config::tests::config;
use crate::keys::StoredKeys;
use crate::keys::pair::tests::fresh;
use crate::revocations::Revocation;
use crate::store::conformance::unsteady::Failure;

/// The keys of one server.
struct Server {
    store: Directory,
    app: Arc<App>,
    health: Health,
    synchronization: Synchronization,
}

impl Server {
    /// Adds a server to a store.
    fn on(store: Directory) -> Self {
        let config = config(&["--signing-type=ecdsa"]).unwrap();
        let app = Arc::new(App::new(config, store.open()));
        let health = Health::new();
        health.set_started();
        let synchronization = Synchronization::new(Arc::clone(&app), &health);
        Self {
            store,
            app,
            health,
            synchronization,
        }
    }

    /// Starts a server with an ecdsa pair, the fastest to generate.
    async fn started() -> Self {
        let mut server = Self::on(Directory::default());
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
        let keys = self.app.live_keys.load_full();
        keys.map(|keys| keys.ring.to_stored().unwrap())
            .unwrap_or_default()
    }

    /// Returns the store error in `/readyz`.
    fn note(&self) -> Option<String> {
        let report = self.health.conditions();
        report.into_iter().find_map(|condition| condition.note)
    }

    fn ring(&self) -> KeyRing {
        self.app.live_keys.load_full().unwrap().ring.clone()
    }
}

#[tokio::test]
async fn a_revoked_key_outlives_the_repair_of_a_broken_pair() {
    let mut server = Server::started().await;
    let (older, ring) = (server.keys(), server.ring());
    let kid = ring.current().id().clone();
    let revoked = ring.revoke(&kid, Some(&fresh()), NOW).unwrap();
    server.store.put_ring(revoked).await;
    server.poll().await;
    let broken = StoredKeys {
        ring: older.ring.clone(),
        ..mixed()
    };
    server.store.put(&broken).await;
    server.poll().await;
    assert_eq!(server.store.keys().await.pair, broken.pair);
    // No server runs that knows of it, and the pair is repaired from a backup.
    let repaired = StoredKeys {
        pair: older.pair,
        ..server.store.keys().await
    };
    let mut next = Server::on(server.store.clone());
    next.store.put(&repaired).await;
    next.synchronization.start().await.unwrap();
    assert!(next.ring().revoked().contains(&kid) && !next.ring().is_listed(&kid));
}

#[tokio::test]
async fn a_store_unusable_before_the_first_key_is_not_ready() {
    let mut server = Server::on(Directory::default());
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

/// As Redis with `?wait` while its replica is away.
#[tokio::test]
async fn old_keys_are_in_force_at_once_though_nothing_is_confirmed() {
    for (age, has_keys) in [(HOUR, true), (0, false)] {
        let first = Server::started().await;
        let revocations = &first.app.revocations;
        revocations.note([Revocation::for_user("1".to_owned(), unix_now())]);
        revocations.flush().await.unwrap();
        let ring = KeyRing::of(fresh()).in_next_generation(unix_now() - age);
        first.store.put_ring(ring).await;
        first.store.fail(Failure::NotAcknowledged);
        let mut second = Server::on(first.store.clone());
        second.synchronization.start().await.unwrap();
        assert_eq!(second.keys() == first.store.keys().await, has_keys);
        assert_eq!(second.health.is_ready(), has_keys);
        assert_eq!(second.note().is_some(), has_keys);
    }
}

#[tokio::test]
async fn an_application_s_end_is_committed_by_the_same_poll() {
    let mut server = Server::started().await;
    let grant = serde_json::from_str(r#"{"audience": ["stock"]}"#).unwrap();
    let granted = SecretHashes::default().with_new("right").with_grant(grant);
    let removed = granted.removed(unix_now());
    let first = orders(granted);
    server.store.put_applications(&first).await;
    server.poll().await;
    let before = server.app.revocations.published().seq;
    let next = first.changed("orders".parse().unwrap(), removed, 2);
    server.store.put_applications(&next).await;
    server.poll().await;
    assert_ne!(server.app.revocations.published().seq, before);
}

/// Another server has issued tokens until it ended, before it read the removal.
#[tokio::test]
async fn an_application_ends_at_a_server_that_starts_after_removal() {
    let removed = |ago| {
        let secrets = SecretHashes::default().with_new("former");
        secrets.removed(unix_now() - ago)
    };
    for (record, revoked, kept) in [
        (removed(1), 0, -60),
        (removed(1).with_new("again"), 0, -60),
        (removed(HOUR), HOUR, 0),
        (removed(HOUR).with_new("again"), HOUR, 0),
    ] {
        let first = Server::started().await;
        first.store.put_applications(&orders(record)).await;
        let mut next = Server::on(first.store.clone());
        let began = unix_now();
        next.synchronization.start().await.unwrap();
        for (ago, is_revoked) in [(revoked, true), (kept, false)] {
            let token = Claims {
                client_id: Some("orders".to_owned()),
                issued_at: Some(began - ago),
                ..Claims::default()
            };
            assert_eq!(next.app.revocations.revokes(&token), is_revoked, "{ago}");
        }
        next.poll().await;
        assert!(revoked == 0 || first.store.revocations().await == 1, "once");
    }
}

#[tokio::test]
async fn servers_agree_on_the_later_applications() {
    let mut one = Server::started().await;
    let applications = one.store.clone();
    let mut two = Server::on(applications.clone());
    let secrets = SecretHashes::default().with_new("first");
    let first = orders(secrets.clone());
    let after = |new| first.changed("orders".parse().unwrap(), secrets.with_new(new), 2);
    let (known, other) = (after("known"), after("other"));
    applications.put_applications(&known).await;
    one.poll().await;
    for (copy, counts, lost) in [(&first, "known", "other"), (&other, "other", "known")] {
        applications.put_applications(copy).await;
        two.poll().await;
        one.poll().await;
        two.poll().await;
        let settled = applications.version().await;
        one.poll().await;
        two.poll().await;
        assert_eq!(applications.version().await, settled, "no one writes again");
        for server in [&one, &two] {
            let accepts = server.app.registrations.authorize("orders", counts);
            assert_eq!(accepts, Ok(()), "{counts}");
            let rejected = server.app.registrations.authorize("orders", lost);
            assert!(rejected.is_err(), "{lost}");
        }
    }
}

#[tokio::test]
async fn a_key_signs_on_time_though_the_store_is_away() {
    let mut server = Server::started().await;
    let announced = server.ring().publish(fresh(), NOW, LEAD);
    let new = announced.next().unwrap().pair.id().clone();
    let announced = server.store.put_ring(announced).await;
    server.poll().await;

    server.store.set_away(true);
    server.poll_at(NOW + LEAD).await;
    assert_eq!(server.ring().current().id(), &new);

    server.store.set_away(false);
    assert_eq!(server.store.ring().await, announced);
    server.poll_at(NOW + LEAD + 9).await;
    assert_eq!(server.store.ring().await.current().id(), &new);
    assert_eq!(server.keys(), server.store.keys().await);
}

#[tokio::test]
async fn keys_go_by_the_clock_of_the_store() {
    const TEN_YEARS: i64 = 315_360_000;
    let mut server = Server::started().await;
    let announced = server.ring().publish(fresh(), NOW, LEAD);
    let announced = server.store.put_ring(announced).await;
    server.store.set_ahead(-TEN_YEARS);
    server.poll_at(NOW + TEN_YEARS).await;
    assert_eq!(server.store.ring().await, announced);
    let due = server.synchronization.next_due().unwrap();
    assert!((due - TEN_YEARS - NOW - LEAD).abs() < 10, "{due}");

    server.poll_at(NOW + TEN_YEARS + LEAD + 10).await;
    let next = &announced.next().unwrap().pair;
    assert_eq!(server.ring().current(), next);
    let since = server.store.ring().await.current_since().unwrap();
    assert!((since - NOW - LEAD).abs() < 30, "{since}");
}

const HOUR: i64 = 3600;
const TYPE: SigningType = SigningType::Ecdsa;
const NOW: i64 = 1_000_000;
/// The default of `--rotation-lead`.
const LEAD: i64 = 150;

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
