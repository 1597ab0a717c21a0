//! Key stores: the signing keys, shared by all servers of an installation.
//!
//! Two stores, encrypted or not, pass one conformance suite. A store moves strings; it does not
//! interpret them.

#[cfg(test)]
mod conformance;
mod encrypting;
mod file;
pub(crate) mod location;
mod redis;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::{Half, StoredKeys};
pub(crate) use crate::store::StoreError;

/// Longer than the stores' own timeouts: an upper bound for any call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

#[async_trait]
pub(crate) trait KeyStore: fmt::Debug + Send + Sync {
    async fn load(&self) -> Result<StoredKeys, StoreError>;

    /// Stores `new` if the store still holds `expected`, atomically, and returns what the store
    /// holds afterwards. Of several servers at the same instant one succeeds; the others adopt its
    /// keys.
    async fn compare_and_swap(
        &self,
        expected: &StoredKeys,
        new: &StoredKeys,
    ) -> Result<StoredKeys, StoreError>;

    /// Returns the reason, such as a full disk, why a change in effect is not complete in the
    /// store.
    fn unfinished(&self) -> Option<StoreError> {
        None
    }

    /// Returns the store's own clock in seconds since the epoch, shared by all its servers; `None`
    /// if it has none or does not give it.
    async fn now(&self) -> Result<Option<i64>, StoreError> {
        Ok(None)
    }

    /// Returns the location of a value, with details for an operator, without secrets.
    fn location(&self, entry: Entry) -> String;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The whole store: `--store` without a password.
    Store,
    KeyPair,
    Half(Half),
    Ring,
}

/// Bounds every call of a store.
pub(crate) async fn within_timeout<T>(
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(CALL_TIMEOUT, call)
        .await
        .unwrap_or_else(|_| {
            Err(StoreError::Unavailable(
                "the key store does not respond".to_owned(),
            ))
        })
}
