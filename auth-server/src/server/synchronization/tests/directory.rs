//! The store of the servers under test.

use std::sync::Arc;

use super::TYPE;
use crate::accounts::applications::secret_hash::SecretHashes;
use crate::accounts::applications::{Applications, records};
use crate::keys::StoredKeys;
use crate::keys::records::Entry;
use crate::keys::ring::KeyRing;
use crate::store::conformance::unsteady::Unsteady;
use crate::store::open_store::OpenStore;
use crate::store::{Store, Version};

/// Clones share the store.
#[derive(Clone)]
pub(super) struct Directory(Arc<Unsteady>);

impl Default for Directory {
    fn default() -> Self {
        Self(Unsteady::new())
    }
}

impl std::ops::Deref for Directory {
    type Target = Unsteady;

    fn deref(&self) -> &Unsteady {
        &self.0
    }
}

impl Directory {
    pub(super) fn open(&self) -> OpenStore {
        OpenStore::unencrypted(Arc::new(Arc::clone(&self.0)))
    }

    pub(super) async fn keys(&self) -> StoredKeys {
        self.open().read_keys().await.unwrap().keys
    }

    /// Replaces the keys.
    pub(super) async fn put(&self, keys: &StoredKeys) {
        for entry in Entry::ALL {
            self.plant(entry.key(), None).await;
        }
        let store = self.open();
        let held = store.read_keys().await.unwrap();
        assert_eq!(store.write_keys(&held, keys).await, Ok(true));
    }

    pub(super) async fn ring(&self) -> KeyRing {
        KeyRing::parse(TYPE, &self.keys().await).unwrap().unwrap()
    }

    /// Replaces the ring, as another server does.
    pub(super) async fn put_ring(&self, ring: KeyRing) -> KeyRing {
        let ring = ring.in_next_generation(1);
        self.put(&ring.to_stored().unwrap()).await;
        ring
    }

    /// Replaces the applications, as another server does.
    pub(super) async fn put_applications(&self, document: &Applications) {
        let text = serde_json::to_string(document).unwrap();
        self.plant(records::key(), Some(&text)).await;
    }

    pub(super) async fn revocations(&self) -> usize {
        self.0.since(0).await.unwrap().len()
    }

    pub(super) async fn version(&self) -> Version {
        let held = self.0.get(&records::key()).await.unwrap();
        held.unwrap().version
    }
}

/// The first document of a store.
pub(super) fn orders(secrets: SecretHashes) -> Applications {
    Applications::default().changed("orders".parse().unwrap(), secrets, 1)
}
