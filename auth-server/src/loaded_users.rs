//! The users of the file at its last load, in the store: a start revokes the tokens of those who have
//! left since, or have other credentials, while no server ran.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use crate::revocations::Revocation;
use crate::revocations::log::RevocationLog;
use crate::store::clock::StoreClock;
use crate::store::envelope_encryption::{EncryptionError, KeyEncryption};
use crate::store::{Change, Key, Kind, Store, StoreError, Stored};
use crate::users::changes::{EnabledUsers, ended};
use crate::users::file::FileUsers;

/// Pause before another try while the store is away.
const RETRY: Duration = Duration::from_secs(30);
/// Each retry sees what the former one, or another server at the same moment, has written.
const ATTEMPTS: usize = 4;
/// Disabled users that a start revokes without a record: less than half of the list, so that they do
/// not end the tokens of everyone.
const MAX_DISABLED: usize = 10_000;

/// The record of the users, and what follows from it.
pub(crate) struct LoadedUsers {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) encryption: Arc<KeyEncryption>,
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) users: Arc<FileUsers>,
    pub(crate) revocations: Arc<RevocationLog>,
}

/// The store did not take a record or a revocation.
#[derive(Debug, thiserror::Error)]
enum NotRecorded {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("another server writes it at the same time")]
    Race,
    #[error("it cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
}

impl LoadedUsers {
    /// Compares the users with those of the last load, and records each later change.
    pub(crate) async fn follow(self, changed: Arc<Notify>) {
        let (started, mut is_compared, mut was_logged) = (Instant::now(), false, false);
        loop {
            let outcome = match is_compared {
                false => self.revoke_who_left(started).await,
                true => self.record().await,
            };
            let Err(error) = outcome else {
                (is_compared, was_logged) = (true, false);
                changed.notified().await;
                continue;
            };
            if !std::mem::replace(&mut was_logged, true) {
                warn!(%error, "the store does not have the users of the file yet: a start would not notice who leaves");
            }
            sleep(RETRY).await;
        }
    }

    /// Revokes up to the start, not up to now: who logged in since then is a user of the file.
    async fn revoke_who_left(&self, started: Instant) -> Result<(), NotRecorded> {
        let held = self.held().await?;
        let left = match self.parsed(held.as_ref()) {
            Some(before) => ended(&before, &self.users.enabled()),
            None => self.disabled(),
        };
        if !left.is_empty() {
            info!(
                users = left.len(),
                "revoking the tokens of users who left since the last load"
            );
            let passed = i64::try_from(started.elapsed().as_secs()).unwrap_or_default();
            let started = self.clock.now().saturating_sub(passed);
            let revocations = left.into_iter();
            let revocations = revocations.map(|id| Revocation::of_user(id, started));
            self.revocations.note(revocations);
        }
        // An equal one as well: the key-encryption key may have been replaced.
        self.write(&self.users.enabled(), held.as_ref()).await?;
        self.record().await
    }

    /// Returns the disabled users, for a store without a record: any of them may have left just now.
    fn disabled(&self) -> Vec<String> {
        let mut disabled = self.users.disabled();
        // Sorted, so that every server selects the same users.
        disabled.sort_unstable();
        if let Some(left_out @ 1..) = disabled.len().checked_sub(MAX_DISABLED) {
            warn!(
                "{left_out} of {} disabled users are not revoked: the list has no room for more. Where one was \
                 disabled while no server ran, auth-server revoke --user ID ends the tokens",
                disabled.len()
            );
        }
        disabled.truncate(MAX_DISABLED);
        disabled
    }

    async fn record(&self) -> Result<(), NotRecorded> {
        for _ in 0..ATTEMPTS {
            let users = self.users.enabled();
            let held = self.held().await?;
            if self.parsed(held.as_ref()).as_ref() == Some(&users) {
                debug!(users = users.len(), "the store has the users of the file");
                return Ok(());
            }
            self.write(&users, held.as_ref()).await?;
        }
        Err(NotRecorded::Race)
    }

    /// Writes the record, unless another server has replaced `held`.
    async fn write(&self, users: &EnabledUsers, held: Option<&Stored>) -> Result<(), NotRecorded> {
        // Without them the record would hide who left.
        self.revocations.flush().await?;
        let (key, text) = (self.key(), serde_json::to_string(users)?);
        let put = Change::Put {
            value: self.encryption.seal_record(&key, &text)?,
            key,
            expected: held.map(|held| held.version.clone()),
            ends: None,
        };
        self.store.commit(vec![put]).await?;
        Ok(())
    }

    async fn held(&self) -> Result<Option<Stored>, StoreError> {
        self.store.get(&self.key()).await
    }

    /// Names one record for each path: servers with other users may share the store.
    fn key(&self) -> Key {
        let path = self.users.path().to_string_lossy();
        Key {
            kind: Kind::Users,
            id: URL_SAFE_NO_PAD.encode(digest(&SHA256, path.as_bytes())),
        }
    }

    /// Reads the record; one that cannot be read counts for none, and gives way to the next.
    fn parsed(&self, held: Option<&Stored>) -> Option<EnabledUsers> {
        let text = self.encryption.open_record(&self.key(), &held?.value);
        serde_json::from_str(&text.ok()?).ok()
    }
}
