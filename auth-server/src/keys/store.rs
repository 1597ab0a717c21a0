//! Where the key pair lives, shared by every server of one installation, with the applications that
//! may fetch its public half.
//!
//! Two stores, one conformance suite. A driver moves strings; what they mean is decided elsewhere.

#[cfg(test)]
mod conformance;
mod file;
pub(crate) mod location;
mod private_directory;
mod redis;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::key_pair::KeyPairFault;
use super::{Half, StoredKeyPair};
use crate::applications::secret_hash::SecretHashes;
use crate::applications::{AppId, Applications};

/// Above the drivers' own time-outs: whatever a store does, a call ends.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The operations every store offers.
#[async_trait]
pub(crate) trait KeyStore: fmt::Debug + Send + Sync {
    /// The stored pair; `None` where either half is missing (contract §1).
    async fn load(&self) -> Result<Option<StoredKeyPair>, StoreError>;

    /// Adopt the winner or install mine, in one indivisible step: returns the whole pair that is
    /// there, or else stores both halves of `candidate` and returns it. Whatever many servers do at
    /// the same instant, all get the same pair.
    async fn adopt_or_install(
        &self,
        candidate: &StoredKeyPair,
    ) -> Result<StoredKeyPair, StoreError>;

    /// Every registered application.
    async fn applications(&self) -> Result<Applications, StoreError>;

    /// Registers one. `false` where the id is taken; what is there stays.
    async fn add_application(&self, id: &AppId, secrets: &SecretHashes)
    -> Result<bool, StoreError>;

    /// The place of a value, with what an operator needs to look at it; never a secret.
    fn whereabouts(&self, entry: Entry) -> String;
}

/// What a store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// All of it: what `--store` says, without a password.
    Store,
    KeyPair,
    Half(Half),
    Applications,
}

/// Why a store did not do as asked. The texts name the place and hold no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreError {
    /// Away for now: the next attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// There, but it refuses us or holds what must be neither used nor overwritten: someone has to
    /// look at it.
    #[error("{0}")]
    Unusable(String),
}

/// Stored applications that cannot be read, said with their place.
fn unusable_applications(store: &dyn KeyStore, cause: &dyn fmt::Display) -> StoreError {
    let place = store.whereabouts(Entry::Applications);
    StoreError::Unusable(format!("{place}: {cause}"))
}

/// A stored pair that cannot be used, said with the place of the half at fault, or of both.
pub(crate) fn unusable_pair(store: &dyn KeyStore, fault: &KeyPairFault) -> StoreError {
    let entry = fault.half().map_or(Entry::KeyPair, Entry::Half);
    StoreError::Unusable(format!("{}: {fault}", store.whereabouts(entry)))
}

/// Every call of a store passes here.
pub(crate) async fn within_timeout<T>(
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(CALL_TIMEOUT, call)
        .await
        .unwrap_or_else(|_| {
            Err(StoreError::Unavailable(
                "the key store does not answer".to_owned(),
            ))
        })
}
