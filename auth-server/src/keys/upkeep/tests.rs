//! The upkeep against a store in memory that can be away, hold anything, and be looked into.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Mutex;

use async_trait::async_trait;

use super::*;
use crate::applications::secret_hash::SecretHashes;
use crate::applications::{AppId, Applications};
use crate::keys::key_pair::tests::pair;

#[derive(Debug, Default)]
struct MemoryStore(Mutex<Contents>);

#[derive(Debug, Default)]
struct Contents {
    away: bool,
    pair: Option<StoredKeyPair>,
    applications: Applications,
}

impl MemoryStore {
    fn with<T>(&self, operation: impl FnOnce(&mut Contents) -> T) -> Result<T, StoreError> {
        let mut contents = self.0.lock().unwrap();
        if contents.away {
            return Err(StoreError::Unavailable("away".to_owned()));
        }
        Ok(operation(&mut contents))
    }

    fn set_away(&self, away: bool) {
        self.0.lock().unwrap().away = away;
    }

    fn pair(&self) -> Option<StoredKeyPair> {
        self.0.lock().unwrap().pair.clone()
    }

    fn put(&self, pair: Option<StoredKeyPair>) {
        self.0.lock().unwrap().pair = pair;
    }

    fn register(&self) {
        let mut contents = self.0.lock().unwrap();
        let id = "orders".parse().unwrap();
        contents.applications.add(id, SecretHashes::of("right"));
    }
}

#[async_trait]
impl KeyStore for MemoryStore {
    async fn load(&self) -> Result<Option<StoredKeyPair>, StoreError> {
        self.with(|contents| contents.pair.clone())
    }

    async fn adopt_or_install(&self, mine: &StoredKeyPair) -> Result<StoredKeyPair, StoreError> {
        self.with(|contents| contents.pair.get_or_insert_with(|| mine.clone()).clone())
    }

    async fn applications(&self) -> Result<Applications, StoreError> {
        self.with(|contents| contents.applications.clone())
    }

    async fn add_application(
        &self,
        id: &AppId,
        secrets: &SecretHashes,
    ) -> Result<bool, StoreError> {
        self.with(|contents| contents.applications.add(id.clone(), secrets.clone()))
    }

    fn whereabouts(&self, entry: Entry) -> String {
        format!("{entry:?}")
    }
}

/// A server as far as its keys go.
struct Server {
    store: Arc<MemoryStore>,
    current: Arc<CurrentKey>,
    registrations: Arc<Registrations>,
    health: Health,
    upkeep: Upkeep,
}

impl Server {
    fn new(signing_type: SigningType) -> Self {
        let store = Arc::new(MemoryStore::default());
        let current = Arc::new(CurrentKey::default());
        let registrations = Arc::new(Registrations::new(signing_type == SigningType::Hmac));
        let health = Health::new();
        health.set_started();
        let upkeep = Upkeep::new(
            Arc::clone(&store) as Arc<dyn KeyStore>,
            signing_type,
            Arc::clone(&current),
            Arc::clone(&registrations),
            Metrics::default(),
            &health,
        );
        Self {
            store,
            current,
            registrations,
            health,
            upkeep,
        }
    }

    /// One that is up, with an ecdsa pair: the quickest to make.
    async fn started() -> Self {
        let mut server = Self::new(SigningType::Ecdsa);
        server.upkeep.start().await.unwrap();
        server
    }

    /// One turn of the loop.
    async fn look(&mut self) {
        let outcome = self.upkeep.synchronize().await;
        self.upkeep.report(outcome);
    }

    fn key(&self) -> Option<StoredKeyPair> {
        self.current.load().map(|pair| pair.stored().clone())
    }
}

#[tokio::test]
async fn contract_1_an_empty_store_is_filled_and_signed_with_what_it_took() {
    let server = Server::started().await;
    assert!(server.key().is_some());
    assert_eq!(server.key(), server.store.pair());
    assert!(server.health.is_ready());
}

#[tokio::test]
async fn contract_1_a_full_store_is_loaded() {
    let mut server = Server::new(SigningType::Ecdsa);
    let theirs = pair(SigningType::Ecdsa).stored().clone();
    server.store.put(Some(theirs.clone()));
    server.upkeep.start().await.unwrap();
    assert_eq!(server.key(), Some(theirs));
}

#[tokio::test]
async fn a_store_that_is_away_stops_no_start_and_nothing_signs_until_it_is_back() {
    let mut server = Server::new(SigningType::Ecdsa);
    server.store.set_away(true);
    server.upkeep.start().await.unwrap();
    server.look().await;
    assert_eq!(server.key(), None);
    assert!(!server.health.is_ready());

    server.store.set_away(false);
    server.look().await;
    assert_eq!(server.key(), server.store.pair());
    assert!(server.health.is_ready());
}

#[tokio::test]
async fn an_unusable_pair_at_the_start_is_for_the_operator() {
    for bad in [mixed(), pair(SigningType::Hmac).stored().clone()] {
        let mut server = Server::new(SigningType::Ecdsa);
        server.store.put(Some(bad.clone()));
        let failure = server.upkeep.start().await.unwrap_err();
        assert!(matches!(&failure, StoreError::Unusable(line) if line.starts_with("KeyPair: ")));
        assert_eq!((server.key(), server.store.pair()), (None, Some(bad)));
    }
}

#[tokio::test]
async fn later_it_is_neither_used_nor_overwritten_and_memory_goes_on() {
    let mut server = Server::started().await;
    let mine = server.key();
    server.store.put(Some(mixed()));
    server.look().await;
    assert_eq!(server.key(), mine);
    assert!(!server.health.is_ready());
    assert!(server.store.pair() != mine);

    server.store.put(mine.clone());
    server.look().await;
    assert!(server.health.is_ready());
}

#[tokio::test]
async fn with_a_key_in_memory_a_store_that_is_away_changes_nothing() {
    let mut server = Server::started().await;
    let mine = server.key();
    server.store.set_away(true);
    server.look().await;
    assert_eq!(server.key(), mine);
    assert!(server.health.is_ready());
}

#[tokio::test]
async fn a_lost_pair_is_put_back_and_another_one_is_adopted() {
    let mut server = Server::started().await;
    let mine = server.key();
    server.store.put(None);
    server.look().await;
    assert_eq!((server.key(), server.store.pair()), (mine.clone(), mine));

    let theirs = pair(SigningType::Ecdsa).stored().clone();
    server.store.put(Some(theirs.clone()));
    server.look().await;
    assert_eq!(server.key(), Some(theirs));
}

#[tokio::test]
async fn lost_applications_are_put_back_before_anything_is_open() {
    let mut server = Server::started().await;
    server.store.register();
    server.look().await;
    *server.store.0.lock().unwrap() = Contents::default();
    server.look().await;
    assert!(
        server
            .store
            .0
            .lock()
            .unwrap()
            .applications
            .admits("orders", "right")
    );
    assert!(server.registrations.authorize("any", "pair").is_err());
    assert_eq!(server.key(), server.store.pair());
}

#[tokio::test]
async fn hmac_makes_no_secret_before_an_application_is_registered() {
    let mut server = Server::new(SigningType::Hmac);
    let failure = server.upkeep.start().await.unwrap_err();
    assert!(
        failure
            .to_string()
            .contains("auth-server application add --store Store"),
        "{failure}"
    );
    server.look().await;
    assert_eq!((server.key(), server.store.pair()), (None, None));

    server.store.register();
    server.look().await;
    assert_eq!(server.key(), server.store.pair());
    assert!(server.key().is_some());
}

fn mixed() -> StoredKeyPair {
    StoredKeyPair {
        private: pair(SigningType::Ecdsa).stored().private.clone(),
        public: pair(SigningType::Ecdsa).stored().public.clone(),
    }
}
