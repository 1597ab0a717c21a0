//! The records of sessions in the store, encrypted where there is a key-encryption key.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::record::SessionRecord;
use super::refresh_token::SessionId;
use crate::store::envelope_encryption::{EncryptionError, KeyEncryption};
use crate::store::{Change, Key, Kind, Outcome, Store, StoreError, Version};

/// Each retry means that the record was replaced meanwhile.
const ATTEMPTS: usize = 8;

#[derive(Clone)]
pub(crate) struct SessionRecords {
    store: Arc<dyn Store>,
    encryption: Arc<KeyEncryption>,
}

/// A session as it stands in the store.
pub(crate) struct Held {
    pub(super) version: Version,
    /// The record, or the reason why this program cannot read it.
    pub(crate) record: Result<SessionRecord, StoreError>,
}

impl Held {
    /// Returns the change that removes it, if it is still the one of this version.
    pub(crate) fn removal(&self, id: SessionId) -> Change {
        Change::Delete {
            key: id.key(),
            expected: self.version.clone(),
        }
    }
}

impl SessionRecords {
    pub(crate) fn new(store: Arc<dyn Store>, encryption: Arc<KeyEncryption>) -> Self {
        Self { store, encryption }
    }

    pub(crate) async fn read(&self, id: SessionId) -> Result<Option<Held>, StoreError> {
        let key = id.key();
        let held = self.store.get(&key).await?;
        Ok(held.map(|held| {
            let opened = self.encryption.open_record(&key, &held.value);
            Held {
                version: held.version,
                record: opened
                    .map_err(|error| error.to_string())
                    .and_then(|text| serde_json::from_str(&text).map_err(malformed))
                    .map_err(|cause| self.unusable(&key, &cause)),
            }
        }))
    }

    /// Writes a session in place of `expected`, none for a new one. Returns `false` and changes nothing
    /// if another one is there.
    pub(super) async fn put(
        &self,
        id: SessionId,
        expected: Option<Version>,
        record: &SessionRecord,
    ) -> Result<bool, StoreError> {
        let key = id.key();
        let text = serde_json::to_string(record).map(Zeroizing::new);
        let text = text.map_err(|error| self.unusable(&key, &malformed(error)))?;
        self.write(key, expected, &text, record.ends).await
    }

    async fn write(
        &self,
        key: Key,
        expected: Option<Version>,
        text: &str,
        ends: i64,
    ) -> Result<bool, StoreError> {
        let sealed = self.encryption.seal_record(&key, text);
        let value = sealed.map_err(|error| self.unusable(&key, &error.to_string()))?;
        let put = Change::Put {
            key,
            expected,
            value,
            ends: Some(ends),
        };
        Ok(self.store.commit(vec![put]).await? == Outcome::Committed)
    }

    /// Lists the sessions of the user of this one; those that end first come first.
    pub(super) async fn of_same_user(&self, id: SessionId) -> Result<Vec<SessionId>, StoreError> {
        let ids = self.store.ids(Kind::Session, id.key().group()).await?;
        Ok(ids.iter().filter_map(|id| SessionId::parse(id)).collect())
    }

    /// Writes all sessions under the current key, also those in clear if `in_clear_counts`. Returns the
    /// number of those that it cannot read.
    pub(crate) async fn reencrypt(&self, in_clear_counts: bool) -> Result<usize, StoreError> {
        let mut unreadable = 0;
        for id in self.store.ids(Kind::Session, "").await? {
            let key = Key {
                kind: Kind::Session,
                id,
            };
            if !self.reencrypt_one(&key, in_clear_counts).await? {
                unreadable += 1;
            }
        }
        Ok(unreadable)
    }

    async fn reencrypt_one(&self, key: &Key, in_clear_counts: bool) -> Result<bool, StoreError> {
        for _ in 0..ATTEMPTS {
            let Some(held) = self.store.get(key).await? else {
                return Ok(true);
            };
            let text = match self.encryption.open_record(key, &held.value) {
                Ok(text) => text,
                Err(EncryptionError::RecordInClear) if in_clear_counts => held.value,
                Err(_) => return Ok(false),
            };
            let Ok(record) = serde_json::from_str::<SessionRecord>(&text) else {
                return Ok(false);
            };
            let (key, expected) = (key.clone(), Some(held.version));
            if self.write(key, expected, &text, record.ends).await? {
                return Ok(true);
            }
        }
        Err(StoreError::Unavailable(
            "a session keeps changing".to_owned(),
        ))
    }

    fn unusable(&self, key: &Key, cause: &str) -> StoreError {
        StoreError::Unusable(format!("{}: {cause}", self.store.describe(key)))
    }
}

/// Describes an error without its text, which may quote the record.
fn malformed(error: serde_json::Error) -> String {
    format!("not the record of a session: {:?}", error.classify())
}
