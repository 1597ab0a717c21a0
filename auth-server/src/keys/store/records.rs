//! Records in the store, beside the keys: sessions of refresh tokens, used verification codes, the
//! sessions of each user, the users of the last load. Each ends with its time; a lost one is not
//! restored.

use std::fmt;

use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use super::StoreError;

const ID_BYTES: usize = 16;
/// Each retry means that the record was replaced meanwhile.
const ATTEMPTS: usize = 8;

/// The name of a record in the store; no refresh token can be made from the name of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordId([u8; ID_BYTES]);

impl RecordId {
    pub(crate) const LENGTH: usize = ID_BYTES;

    /// Takes the first bytes; `None` if there are too few.
    pub(crate) fn from_start(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().copied().map(Self)
    }

    /// Returns the name of a record that is no session. The text is longer than the part of a refresh
    /// token whose digest names a session: no token can name such a record.
    pub(crate) fn of_other(kind: OtherRecord, subject: &str) -> Self {
        let text = format!("postern record of {kind:?}: {subject}");
        let name = digest(&SHA256, text.as_bytes());
        Self::from_start(name.as_ref()).unwrap_or(Self([0; ID_BYTES]))
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        <[u8; ID_BYTES]>::try_from(bytes).ok().map(Self)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; ID_BYTES] {
        &self.0
    }
}

/// The records beside sessions. Their names stand in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherRecord {
    /// A verification code that was used.
    UsedCode,
    /// The list of a user's sessions.
    SessionsOfUser,
    /// The users of the last load of their file.
    LoadedUsers,
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

/// A record as it was read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoredRecord {
    pub(crate) text: String,
    /// As the store holds it: a swap compares that.
    pub(super) held: String,
}

/// Redacted: it names a user.
impl fmt::Debug for StoredRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredRecord([redacted])")
    }
}

impl StoredRecord {
    pub(super) fn in_clear(held: String) -> Self {
        Self {
            text: held.clone(),
            held,
        }
    }
}

/// A record to store.
#[derive(Clone, Copy)]
pub(crate) struct NewRecord<'t> {
    pub(crate) text: &'t str,
    /// Seconds since the epoch, after which the store forgets it.
    pub(crate) ends: i64,
}

#[async_trait]
pub(crate) trait RecordStore: fmt::Debug + Send + Sync {
    /// Reads a record; `None` for one that is missing, over or not authentic.
    async fn record(&self, id: &RecordId) -> Result<Option<StoredRecord>, StoreError>;

    /// Replaces `expected` (`None`: no record, or one that counts as none) by `new` (`None`: removes
    /// it), atomically. Returns `false` and changes nothing if the store holds another one.
    async fn swap_record(
        &self,
        id: &RecordId,
        expected: Option<&StoredRecord>,
        new: Option<NewRecord<'_>>,
    ) -> Result<bool, StoreError>;
}

/// Reads a record that is no session. One that needs a key this server lacks counts as none, as it
/// gives way to the next one: its name is fixed, and an error would last.
pub(crate) async fn other_record(
    store: &dyn RecordStore,
    id: &RecordId,
) -> Result<Option<StoredRecord>, StoreError> {
    match store.record(id).await {
        Err(StoreError::Unusable(_)) => Ok(None),
        held => held,
    }
}

/// Removes a record and returns it; `None` if no record has this id, or not the meant one: an id
/// from outside may name any record.
pub(crate) async fn remove_record(
    store: &dyn RecordStore,
    id: &RecordId,
    is_meant: impl Fn(&StoredRecord) -> bool,
) -> Result<Option<StoredRecord>, StoreError> {
    for _ in 0..ATTEMPTS {
        let held = store.record(id).await?;
        let Some(held) = held.filter(&is_meant) else {
            return Ok(None);
        };
        if store.swap_record(id, Some(&held), None).await? {
            return Ok(Some(held));
        }
    }
    Err(StoreError::Unavailable(
        "a stored record keeps changing".to_owned(),
    ))
}
