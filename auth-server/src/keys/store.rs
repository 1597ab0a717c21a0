//! Where the key pair lives, shared by every server of one installation, with the applications that
//! may fetch its public half.
//!
//! Two stores, encrypted or not, one conformance suite. A driver moves strings; what they mean is decided elsewhere.

#[cfg(test)]
mod conformance;
mod encrypting;
pub(crate) mod envelope_encryption;
mod file;
pub(crate) mod location;
mod record_mac;
pub(crate) mod redis;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use runtime::exit::Failure;

use super::{Half, StoredKeys};
use crate::applications::secret_hash::SecretHashes;
use crate::applications::{AppId, Applications};

/// Above the drivers' own time-outs: whatever a store does, a call ends.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The operations every store offers.
#[async_trait]
pub(crate) trait KeyStore: fmt::Debug + Send + Sync {
    /// The keys of one moment.
    async fn load(&self) -> Result<StoredKeys, StoreError>;

    /// Stores `new` if the store still holds `expected`, in one indivisible step, and returns what
    /// the store holds then. Of many servers that do so at the same instant one succeeds, and the
    /// others get what it stored: adopt the winner or install mine.
    async fn compare_and_swap(
        &self,
        expected: &StoredKeys,
        new: &StoredKeys,
    ) -> Result<StoredKeys, StoreError>;

    /// The record of every application, of removed ones too, and apart from them what cannot be read.
    async fn applications(&self) -> Result<Applications, StoreError>;

    /// Puts `record` in the place of `expected` (`None`: of no record at all) in one indivisible
    /// step. `false` where something else is there, which then stays; and where `beside`, the record
    /// of another application, is not there unchanged.
    async fn swap_application(
        &self,
        id: &AppId,
        expected: Option<&SecretHashes>,
        record: &SecretHashes,
        beside: Option<(&AppId, &SecretHashes)>,
    ) -> Result<bool, StoreError>;

    /// What keeps a change that counts already from being completed in the store, such as a full disk.
    fn unfinished(&self) -> Option<StoreError> {
        None
    }

    /// Returns the seconds since the epoch by the store's own clock, which all its servers share;
    /// `None` where it has none, or does not say.
    async fn now(&self) -> Result<Option<i64>, StoreError> {
        Ok(None)
    }

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
    Ring,
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

/// An unusable store is for the operator to repair, an absent one to wait for.
impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(line) => Self::Unavailable(line),
            StoreError::Unusable(line) => Self::Config(line),
        }
    }
}

/// Stored applications that cannot be read, said with their place.
fn unusable_applications(store: &dyn KeyStore, cause: &dyn fmt::Display) -> StoreError {
    let place = store.whereabouts(Entry::Applications);
    StoreError::Unusable(format!("{place}: {cause}"))
}

/// A record that is there, is none to this version, and so is not replaced by it.
fn unreadable_record(store: &dyn KeyStore, id: &AppId) -> StoreError {
    let cause = format!("the record of {id} cannot be read; it stays until somebody removes it");
    unusable_applications(store, &cause)
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
