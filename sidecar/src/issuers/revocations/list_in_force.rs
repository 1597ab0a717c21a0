//! The revocation list in force: one for all issuers, because it may end tokens of each of them.

use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};
use postern_contract::rejection::Rejection;
use postern_token::revocations::TokenDigests;
use tokio::sync::watch;

use super::Revocations;

/// The list that requests read without a lock, and that one task replaces.
#[derive(Debug, Default)]
pub(crate) struct ListInForce {
    /// `None` before the first list.
    list: ArcSwapOption<Revocations>,
    /// The start and the cause of an outage of the list.
    pub(crate) failed: ArcSwapOption<String>,
    /// Wakes the streams whose tokens other lines may end.
    changes: watch::Sender<()>,
}

impl ListInForce {
    pub(crate) fn load(&self) -> Guard<Option<Arc<Revocations>>> {
        self.list.load()
    }

    /// Puts a list in force. Returns true, and wakes the streams, if its lines differ from the former list's.
    pub(crate) fn install(&self, list: Revocations) -> bool {
        let list = Arc::new(list);
        let former = self.list.swap(Some(Arc::clone(&list)));
        // The same lines end the same tokens, so no stream has to check its token again.
        if let Some(former) = former
            && list.has_lines_of(&former)
        {
            return false;
        }
        self.changes.send_replace(());
        true
    }

    /// Checks that a verified token, from the cache or not, is not revoked.
    ///
    /// # Errors
    /// [`Rejection::TokenRevoked`].
    pub(crate) fn check(&self, token: &TokenDigests) -> Result<(), Rejection> {
        match self.load().as_deref() {
            Some(list) if list.revokes(token) => Err(Rejection::TokenRevoked),
            _ => Ok(()),
        }
    }

    /// Completes once this token is revoked.
    pub(crate) async fn revoked(self: Arc<Self>, token: TokenDigests) {
        // Subscribed before the check: a list that is installed between the two wakes this wait.
        let mut changes = self.changes.subscribe();
        while self.check(&token).is_ok() {
            if changes.changed().await.is_err() {
                // `self` holds the sender, so the channel cannot close.
                return std::future::pending().await;
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::{Duration, Instant};

    use postern_token::claims::Claims;
    use postern_token::keys::signing_type::SigningType;
    use postern_token::keys::{KeySet, VerificationKey};

    use super::*;
    use crate::issuers::revocations::fetched_list::tests::list_of;

    #[tokio::test]
    async fn a_stream_waits_for_the_list_that_names_its_token() {
        const SECRET: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
        let keys = KeySet::nameless(VerificationKey::parse(SigningType::Hmac, SECRET).unwrap());
        let digests = TokenDigests::from_claims(&Claims {
            token_id: Some("x".to_owned()),
            ..Claims::default()
        });
        let in_force = Arc::new(ListInForce::default());
        let install = |seq, tokens: &[&str]| {
            let list = list_of(SECRET, seq, tokens);
            in_force.install(Revocations::new(list, &keys, Instant::now()))
        };
        let mut revoked = Box::pin(Arc::clone(&in_force).revoked(digests));
        assert!(install(1, &["y"]));
        assert!(!install(2, &["y"]), "the same lines");
        let pending = tokio::time::timeout(Duration::ZERO, &mut revoked);
        assert!(pending.await.is_err());
        assert!(install(3, &["x"]));
        revoked.await;
        in_force.revoked(digests).await;
    }
}
