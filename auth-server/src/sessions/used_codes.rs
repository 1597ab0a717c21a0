//! Verification codes that were used on any server of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use runtime::process::clock::unix_now;
use tokio::time::timeout;
use tracing::warn;

use super::STORE_TIMEOUT;
use crate::keys::store::StoreError;
use crate::keys::store::records::{NewRecord, OtherRecord, RecordId, RecordStore};
use crate::random;

/// Seconds: a code counts for 90, on each server by its own clock.
const KEPT: i64 = 600;

pub(crate) struct UsedCodes {
    store: Arc<dyn RecordStore>,
    /// True once a login without the store was logged.
    is_away: AtomicBool,
}

impl UsedCodes {
    pub(crate) fn new(store: Arc<dyn RecordStore>) -> Self {
        Self {
            store,
            is_away: AtomicBool::new(false),
        }
    }

    /// Records an accepted code. Returns false if it was used before, here or on another server; while
    /// the store is away only this server's memory counts, as logins do not wait for the store.
    pub(crate) async fn record(&self, user_id: &str, code: &str) -> bool {
        let recorded = timeout(STORE_TIMEOUT, self.recorded(user_id, code)).await;
        let recorded = recorded.unwrap_or_else(|_| {
            let line = "the store of used codes does not respond".to_owned();
            Err(StoreError::Unavailable(line))
        });
        let was_away = self.is_away.swap(recorded.is_err(), Ordering::Relaxed);
        if let Err(error) = &recorded
            && !was_away
        {
            warn!(%error, "verification codes count once on each server: the store does not take used ones");
        }
        recorded.unwrap_or(true)
    }

    async fn recorded(&self, user_id: &str, code: &str) -> Result<bool, StoreError> {
        let id = RecordId::of_other(OtherRecord::UsedCode, &format!("{code} {user_id}"));
        // Unique: the store takes an equal value for a repeated call.
        let text = random::token_id();
        let text =
            text.map_err(|_| StoreError::Unavailable("there is no randomness".to_owned()))?;
        let ends = unix_now().saturating_add(KEPT);
        let new = NewRecord { text: &text, ends };
        self.store.swap_record(&id, None, Some(new)).await
    }
}
