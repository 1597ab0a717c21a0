//! The records of sessions, encrypted where the store is.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::record::SessionRecord;
use super::refresh_token::SessionId;
use crate::keys::records::KeyRecords;
use crate::store::envelope_encryption::{EncryptionError, KeyEncryption};
use crate::store::{Change, Key, Kind, Outcome, Store, StoreError, Version};

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
        let Some(held) = self.store.get(&key).await? else {
            return Ok(None);
        };
        let opened = self.open(&key, &held.value).await?;
        Ok(Some(Held {
            version: held.version,
            record: opened
                .map_err(|error| error.to_string())
                .and_then(|text| serde_json::from_str(&text).map_err(malformed))
                .map_err(|cause| self.unusable(&key, &cause)),
        }))
    }

    async fn open(
        &self,
        key: &Key,
        value: &str,
    ) -> Result<Result<Zeroizing<String>, EncryptionError>, StoreError> {
        let opened = self.encryption.open_record(key, value);
        if opened != Err(EncryptionError::Planted) {
            return Ok(opened);
        }
        // It was not if the store has been decrypted since it was read.
        let (store, encryption) = (Arc::clone(&self.store), Arc::clone(&self.encryption));
        let keys = KeyRecords::new(store, encryption, String::new());
        keys.read().await?;
        Ok(self.encryption.open_record(key, value))
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

    fn unusable(&self, key: &Key, cause: &str) -> StoreError {
        StoreError::Unusable(format!("{}: {cause}", self.store.describe(key)))
    }
}

/// Reads when the session of a record ends; `None` for what is no session.
pub(crate) fn end_of(text: &str) -> Option<i64> {
    let record = serde_json::from_str::<SessionRecord>(text);
    record.ok().map(|record| record.ends)
}

/// Describes an error without its text, which may quote the record.
fn malformed(error: serde_json::Error) -> String {
    format!("not the record of a session: {:?}", error.classify())
}
