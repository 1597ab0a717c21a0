//! The records of sessions.

use serde::Deserialize;
use serde_json::Value;

use super::record::SessionRecord;
use super::refresh_token::SessionId;
use crate::keys::records::KeyRecords;
use crate::store::sealed::{Held, SealedRecords};
use crate::store::{Kind, StoreError, Version};

pub(crate) struct SessionRecords(pub(crate) SealedRecords);

impl SessionRecords {
    pub(crate) async fn read(
        &self,
        id: SessionId,
    ) -> Result<Option<Held<SessionRecord>>, StoreError> {
        let Self(records) = self;
        let held = records.read(&id.key()).await?;
        if held.as_ref().is_none_or(|held| !held.is_planted) {
            return Ok(held);
        }
        // It was not if the store has been decrypted since it was read.
        let keys = KeyRecords {
            sealed: records.clone(),
            location: String::new(),
        };
        keys.read().await?;
        records.read(&id.key()).await
    }

    /// Writes a session in place of `expected`, none for a new one. Returns `false` and changes nothing
    /// if another one is there.
    pub(super) async fn put(
        &self,
        id: SessionId,
        expected: Option<Version>,
        record: &SessionRecord,
    ) -> Result<bool, StoreError> {
        let ends = Some(record.kept_until());
        self.0.write(id.key(), expected, record, ends).await
    }

    /// Lists the sessions of the user of this one; those that end first come first.
    pub(super) async fn of_same_user(&self, id: SessionId) -> Result<Vec<SessionId>, StoreError> {
        let ids = self.0.store.ids(Kind::Session, id.key().group()).await?;
        Ok(ids.iter().filter_map(|id| SessionId::parse(id)).collect())
    }
}

/// Returns the time until which the record of a session is kept; `None` for what is no session.
pub(crate) fn kept_until(record: &Value) -> Option<i64> {
    let record = SessionRecord::deserialize(record);
    record.ok().map(|record| record.kept_until())
}
