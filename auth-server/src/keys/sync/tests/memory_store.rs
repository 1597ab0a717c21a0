//! An in-memory store that tests can fill, empty and make unavailable.

use std::sync::Mutex;

use async_trait::async_trait;

use super::TYPE;
use crate::keys::StoredKeys;
use crate::keys::ring::KeyRing;
use crate::keys::store::{Entry, KeyStore, StoreError};

#[derive(Debug, Default)]
pub(super) struct MemoryStore(Mutex<Contents>);

#[derive(Debug, Default)]
struct Contents {
    away: bool,
    clock: Option<i64>,
    unfinished: Option<StoreError>,
    keys: StoredKeys,
}

impl MemoryStore {
    fn with<T>(&self, operation: impl FnOnce(&mut Contents) -> T) -> Result<T, StoreError> {
        let mut contents = self.0.lock().unwrap();
        if contents.away {
            return Err(StoreError::Unavailable("away".to_owned()));
        }
        Ok(operation(&mut contents))
    }

    pub(super) fn set_away(&self, away: bool) {
        self.0.lock().unwrap().away = away;
    }

    pub(super) fn set_unfinished(&self, cause: Option<StoreError>) {
        self.0.lock().unwrap().unfinished = cause;
    }

    pub(super) fn set_clock(&self, now: i64) {
        self.0.lock().unwrap().clock = Some(now);
    }

    pub(super) fn keys(&self) -> StoredKeys {
        self.0.lock().unwrap().keys.clone()
    }

    pub(super) fn put(&self, keys: StoredKeys) {
        self.0.lock().unwrap().keys = keys;
    }

    pub(super) fn lose_everything(&self) {
        *self.0.lock().unwrap() = Contents::default();
    }

    pub(super) fn ring(&self) -> KeyRing {
        KeyRing::parse(TYPE, &self.keys()).unwrap().unwrap()
    }

    pub(super) fn put_ring(&self, ring: &KeyRing) {
        self.put(ring.to_stored().unwrap());
    }
}

#[async_trait]
impl KeyStore for MemoryStore {
    async fn load(&self) -> Result<StoredKeys, StoreError> {
        self.with(|contents| contents.keys.clone())
    }

    async fn compare_and_swap(
        &self,
        expected: &StoredKeys,
        new: &StoredKeys,
    ) -> Result<StoredKeys, StoreError> {
        self.with(|contents| {
            if contents.keys == *expected {
                contents.keys = new.clone();
            }
            contents.keys.clone()
        })
    }

    fn unfinished(&self) -> Option<StoreError> {
        self.0.lock().unwrap().unfinished.clone()
    }

    async fn now(&self) -> Result<Option<i64>, StoreError> {
        self.with(|contents| contents.clock)
    }

    fn location(&self, entry: Entry) -> String {
        format!("{entry:?}")
    }
}
