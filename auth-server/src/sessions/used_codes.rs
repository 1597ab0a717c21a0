//! Verification codes that were used on any server of the store.

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use super::Sessions;
use crate::store::{Change, Key, Kind, Outcome, StoreError};

/// Seconds: a code counts for 90, on each server by its own clock.
const KEPT: i64 = 600;

impl Sessions {
    /// Records an accepted code. Returns false if it was used before, here or on another server; while
    /// the store does not take it only this server's memory counts, as logins go on without the store.
    ///
    /// # Errors
    /// [`StoreError::Busy`] alone, before anything is recorded: clients can bring it about.
    pub(crate) async fn record_code(&self, user_id: &str, code: &str) -> Result<bool, StoreError> {
        // As the check of the code reads it.
        let digits: String = code.split_whitespace().collect();
        let name = digest(&SHA256, format!("{digits} {user_id}").as_bytes());
        let put = Change::Put {
            key: Key {
                kind: Kind::UsedCode,
                id: URL_SAFE_NO_PAD.encode(name),
            },
            expected: None,
            value: Zeroizing::default(),
            ends: Some(self.store.clock.now().saturating_add(KEPT)),
        };
        let recorded = self.store.call().await?.commit(vec![put]).await;
        self.log_outage(recorded.as_ref().err());
        Ok(recorded != Ok(Outcome::Conflict))
    }
}
