//! Sessions in the store: a record for each login with a refresh token, beside the keys. It ends with
//! its time; a lost one is not restored. Some other records have the same door: used verification
//! codes, the sessions of each user, the users of the last load.

use std::fmt;

use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use super::StoreError;

const ID_BYTES: usize = 16;
/// Each retry means that the session was renewed meanwhile.
const ATTEMPTS: usize = 8;

/// The name of a session in the store; no refresh token can be made from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionId([u8; ID_BYTES]);

impl SessionId {
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

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

/// A record as it was read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoredSession {
    pub(crate) text: String,
    /// As the store holds it: a swap compares that.
    pub(super) held: String,
}

/// Redacted: it names a user.
impl fmt::Debug for StoredSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredSession([redacted])")
    }
}

impl StoredSession {
    pub(super) fn in_clear(held: String) -> Self {
        Self {
            text: held.clone(),
            held,
        }
    }
}

/// A record to store.
#[derive(Clone, Copy)]
pub(crate) struct NewSession<'t> {
    pub(crate) text: &'t str,
    /// Seconds since the epoch, after which the store forgets it.
    pub(crate) ends: i64,
}

#[async_trait]
pub(crate) trait SessionStore: fmt::Debug + Send + Sync {
    /// Reads a record; `None` for one that is missing, over or not authentic.
    async fn session(&self, id: &SessionId) -> Result<Option<StoredSession>, StoreError>;

    /// Replaces `expected` (`None`: no record, or one that counts as none) by `new` (`None`: removes
    /// it), atomically. Returns `false` and changes nothing if the store holds another one.
    async fn swap_session(
        &self,
        id: &SessionId,
        expected: Option<&StoredSession>,
        new: Option<NewSession<'_>>,
    ) -> Result<bool, StoreError>;
}

/// Reads a record that is no session. One that needs a key this server lacks counts as none, as it
/// gives way to the next one: its name is fixed, and an error would last.
pub(crate) async fn other_record(
    store: &dyn SessionStore,
    id: &SessionId,
) -> Result<Option<StoredSession>, StoreError> {
    match store.session(id).await {
        Err(StoreError::Unusable(_)) => Ok(None),
        held => held,
    }
}

/// Removes a session and returns its last record; `None` if there is none.
pub(crate) async fn remove_session(
    store: &dyn SessionStore,
    id: &SessionId,
) -> Result<Option<StoredSession>, StoreError> {
    for _ in 0..ATTEMPTS {
        let Some(held) = store.session(id).await? else {
            return Ok(None);
        };
        if store.swap_session(id, Some(&held), None).await? {
            return Ok(Some(held));
        }
    }
    Err(StoreError::Unavailable(
        "a stored session keeps changing".to_owned(),
    ))
}
