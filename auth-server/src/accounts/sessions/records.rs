//! The records of sessions.

use serde::Deserialize;
use serde_json::Value;

use super::record::SessionRecord;
use super::refresh_token::SessionId;
use crate::store::open_store::{Held, OpenStore};
use crate::store::{Change, Kind, Outcome, StoreError, Version};

impl OpenStore {
    pub(crate) async fn read_session(
        &self,
        id: SessionId,
    ) -> Result<Held<SessionRecord>, StoreError> {
        let held = self.read(&id.key()).await?;
        if !held.is_planted {
            return Ok(held);
        }
        // Read again: the store may have been decrypted since its state was read, and then the record is not
        // planted.
        self.read_keys().await?;
        self.read(&id.key()).await
    }

    /// Writes a session in place of the version `expected`; `None` for a new session. Returns `false` and
    /// changes nothing if the store has another version.
    pub(super) async fn write_session(
        &self,
        id: SessionId,
        expected: Option<Version>,
        record: &SessionRecord,
    ) -> Result<bool, StoreError> {
        self.write(id.key(), expected, record, Some(record.kept_until()))
            .await
    }

    /// Waits until a session, or its absence, is as safe as a commit. Returns false if it has changed since this
    /// version was read.
    pub(super) async fn confirm_session(
        &self,
        id: SessionId,
        expected: Option<Version>,
    ) -> Result<bool, StoreError> {
        let key = id.key();
        self.confirm(vec![Change::Check { key, expected }]).await
    }

    /// Removes a session if there is one, and confirms that there is none.
    pub(super) async fn remove_session(&self, id: SessionId) -> Result<(), StoreError> {
        let held: Held<SessionRecord> = self.read(&id.key()).await?;
        let removal = held.removal().unwrap_or_else(|| held.check());
        match self.call().await?.commit(vec![removal]).await? {
            Outcome::Committed => Ok(()),
            // The next attempt reads it again.
            Outcome::Conflict => Err(StoreError::changed()),
        }
    }

    /// Lists the sessions of this session's user; those that end first come first.
    pub(super) async fn sessions_of_same_user(
        &self,
        id: SessionId,
    ) -> Result<Vec<SessionId>, StoreError> {
        let key = id.key();
        let ids = self.call().await?.ids(Kind::Session, key.group()).await?;
        Ok(ids.iter().filter_map(|id| SessionId::parse(id)).collect())
    }
}

/// Returns the time until which the record of a session is kept.
///
/// # Errors
/// For a value that is no session, or a session of a newer version.
pub(crate) fn kept_until(record: &Value) -> serde_json::Result<Option<i64>> {
    Ok(Some(SessionRecord::deserialize(record)?.kept_until()))
}
