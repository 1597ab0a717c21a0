//! An open store as the parts of this program share it: its records as JSON, encrypted if the store is, its
//! clock, and the bound on simultaneous calls of requests. The only code that distinguishes an authentic
//! record from a planted one.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use zeroize::Zeroizing;

use super::at_rest::KeyEncryption;
use super::clock::StoreClock;
use super::envelope_encryption::EncryptionError;
use super::{Change, Key, Kind, Outcome, Store, StoreError, Version};
use crate::rate_limit::{Permit, Permits};

/// Max number of calls of requests at once: each has a connection to Redis, or a thread that waits.
const MAX_CALLS: usize = 64;

/// Clones share the store.
#[derive(Clone)]
pub(crate) struct OpenStore {
    store: Arc<dyn Store>,
    pub(crate) encryption: Arc<KeyEncryption>,
    /// The clock of the store, as of the last poll.
    pub(crate) clock: Arc<StoreClock>,
    /// Names the store for an operator, without secrets.
    pub(crate) location: Arc<str>,
    /// The permits of requests; `None` for polls and commands, which are few.
    permits: Option<Arc<Permits>>,
    /// The client of the request, if it is known: clients that wait for permits take turns.
    client: Option<IpAddr>,
}

/// The store for one call, or a few in a row; when it is dropped, another call may begin.
pub(crate) struct Call<'s> {
    store: &'s dyn Store,
    _permit: Option<Permit>,
}

impl<'s> Deref for Call<'s> {
    type Target = dyn Store + 's;

    fn deref(&self) -> &Self::Target {
        self.store
    }
}

/// A record as it stands in the store.
pub(crate) struct Held<R> {
    key: Key,
    /// `None` for an absent record.
    pub(crate) version: Option<Version>,
    /// The record, if there is one, or the reason why this program cannot read it.
    pub(crate) record: Result<Option<R>, StoreError>,
    /// True for a record in clear in an encrypted store.
    pub(crate) is_planted: bool,
}

impl<R> Held<R> {
    /// Returns the change that expects the record, or its absence, as it was read.
    pub(crate) fn check(&self) -> Change {
        Change::Check {
            key: self.key.clone(),
            expected: self.version.clone(),
        }
    }

    /// Returns the change that removes the record, if it still has this version.
    pub(crate) fn removal(&self) -> Option<Change> {
        Some(Change::Delete {
            key: self.key.clone(),
            expected: self.version.clone()?,
        })
    }
}

impl OpenStore {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        encryption: Arc<KeyEncryption>,
        location: &dyn fmt::Display,
    ) -> Self {
        Self {
            store,
            encryption,
            clock: Arc::default(),
            location: location.to_string().into(),
            permits: None,
            client: None,
        }
    }

    /// Returns the store for all requests, which share one bound: called once, for the whole program.
    pub(crate) fn for_requests(&self) -> Self {
        Self {
            permits: Some(Arc::new(Permits::new(MAX_CALLS))),
            ..self.clone()
        }
    }

    /// Returns the store for a request of this client.
    pub(crate) fn for_client(&self, client: IpAddr) -> Self {
        Self {
            client: Some(client),
            ..self.clone()
        }
    }

    /// Waits until a call may begin; the store bounds its time.
    ///
    /// # Errors
    /// [`StoreError::Busy`].
    pub(crate) async fn call(&self) -> Result<Call<'_>, StoreError> {
        let _permit = match &self.permits {
            // Requests wait in turn; if the store hangs they are rejected, and do not wait for good.
            Some(permits) => Some(permits.take(self.client).await.ok_or(StoreError::Busy)?),
            None => None,
        };
        Ok(Call {
            store: &*self.store,
            _permit,
        })
    }

    /// Waits until what was read is as safe as a commit: the outcome of the commit that wrote it may have been
    /// unclear. Returns false if it has changed since, as by a fail-over; a store without replicas returns true.
    pub(crate) async fn confirm(&self, checks: Vec<Change>) -> Result<bool, StoreError> {
        Ok(self.call().await?.commit(checks).await? == Outcome::Committed)
    }

    pub(crate) async fn read<R: DeserializeOwned>(&self, key: &Key) -> Result<Held<R>, StoreError> {
        let held = self.call().await?.get(key).await?;
        let opened = match &held {
            Some(held) => self.encryption.open_record(key, &held.value).map(Some),
            None => Ok(None),
        };
        // Compared before the error becomes a text: the callers of planted records remove them.
        let is_planted = opened == Err(EncryptionError::Planted);
        let record = match opened {
            Ok(Some(text)) => match serde_json::from_str(&text) {
                Ok(record) => Ok(Some(record)),
                // The text of the error is left out, because it may quote the record.
                Err(error) => Err(format!("not a record of its kind: {:?}", error.classify())),
            },
            Ok(None) => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        Ok(Held {
            key: key.clone(),
            version: held.map(|held| held.version),
            record: record.map_err(|cause| self.unusable(key, &cause)),
            is_planted,
        })
    }

    /// Returns the change that writes a record in place of the version `expected`; `None` for a new record.
    pub(crate) fn put(
        &self,
        key: Key,
        expected: Option<Version>,
        record: &impl Serialize,
        ends: Option<i64>,
    ) -> Result<Change, StoreError> {
        let text = serde_json::to_string(record).map(Zeroizing::new)?;
        let value = self.encryption.seal_record(&key, &text);
        Ok(Change::Put {
            value: value.map_err(|error| self.unusable(&key, &error.to_string()))?,
            key,
            expected,
            ends,
        })
    }

    /// Writes a record. Returns `false` and changes nothing if the store has another version than `expected`.
    pub(crate) async fn write(
        &self,
        key: Key,
        expected: Option<Version>,
        record: &impl Serialize,
        ends: Option<i64>,
    ) -> Result<bool, StoreError> {
        let put = self.put(key, expected, record, ends)?;
        Ok(self.call().await?.commit(vec![put]).await? == Outcome::Committed)
    }

    /// Writes every record of a kind again, encrypted if the store is, and returns the number of records that
    /// cannot be read. `ends` reads the end of a record's life from the record.
    pub(crate) async fn rewrite(
        &self,
        kind: Kind,
        ends: impl Fn(&Value) -> serde_json::Result<Option<i64>>,
    ) -> Result<usize, StoreError> {
        let mut left = 0;
        let ids = self.call().await?.ids(kind, "").await?;
        for id in ids {
            let key = Key { kind, id };
            loop {
                let held = self.read::<Value>(&key).await?;
                let record = match held.record {
                    // The record has ended or was removed since the ids were read.
                    Ok(None) => break,
                    record => record.ok().flatten(),
                };
                let readable = record.and_then(|record| Some((ends(&record).ok()?, record)));
                let Some((ends, record)) = readable else {
                    // A record that cannot be read would be lost by a rewrite, so it stays.
                    left += 1;
                    break;
                };
                // On a conflict a request has changed or removed the record meanwhile: it is read again.
                if self.write(key.clone(), held.version, &record, ends).await? {
                    break;
                }
            }
        }
        Ok(left)
    }

    /// Returns an error that names the place of a record.
    pub(crate) fn unusable(&self, key: &Key, cause: &str) -> StoreError {
        StoreError::Unusable(format!("{}: {cause}", self.store.describe(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl OpenStore {
        /// Returns the store as a program without key-encryption keys opens it.
        pub(crate) fn unencrypted(store: Arc<dyn Store>) -> Self {
            Self::new(store, Arc::default(), &"Store")
        }

        /// Returns the store as a program with other keys opens it.
        pub(crate) fn with(self, encryption: KeyEncryption) -> Self {
            Self {
                encryption: Arc::new(encryption),
                ..self
            }
        }
    }
}
