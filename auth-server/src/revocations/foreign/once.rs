//! A statement of another issuer ends what it names once, whichever servers of a store receive it.

use postern_token::revocations::RevocationDigest;

use super::VerifiedStatement;
use crate::revocations::entry::StatementDigests;
use crate::revocations::log::RevocationLog;
use crate::store::open_store::OpenStore;
use crate::store::{Key, Kind, Outcome, StoreError};
use crate::telemetry::metrics::StatementOutcome;

impl VerifiedStatement {
    /// Ends what the statement names. Returns `None` where another statement with the same `jti` has ended
    /// something.
    ///
    /// # Errors
    /// The errors of the store; the same statement may be sent again.
    pub(crate) async fn end_once(
        &self,
        log: &RevocationLog,
        store: &OpenStore,
    ) -> Result<Option<StatementOutcome>, StoreError> {
        let StatementDigests { id, token } = self.digests;
        // Reads the statements that other servers have received.
        log.catch_up(store).await?;
        let known = match log.statement(&id) {
            Some(known) => known,
            None => match self.end_first(log, store).await? {
                Some(other) => other,
                None => return Ok(Some(StatementOutcome::Ended)),
            },
        };
        // The commit of the first one may have been unclear, or a former primary alone may know it.
        log.confirm(store).await?;
        Ok((known == token).then_some(StatementOutcome::Repeated))
    }

    /// Ends what the statement names, unless another request was first with its `jti`; then it returns the
    /// digest of that statement.
    async fn end_first(
        &self,
        log: &RevocationLog,
        store: &OpenStore,
    ) -> Result<Option<RevocationDigest>, StoreError> {
        let StatementDigests { id, token } = self.digests;
        let key = Key {
            kind: Kind::Statement,
            id: id.to_string(),
        };
        // Only one statement with this id can be the first, at all servers of the store.
        let first = store.put(key.clone(), None, &token, Some(self.ends))?;
        let revocations = self.revocations(store.clock.now());
        if log.append(store, &revocations, vec![first]).await? == Outcome::Committed {
            // The user may have got tokens while the store was busy, in a later second.
            let mut later = self.revocations(store.clock.now());
            later.retain(|one| {
                !revocations
                    .iter()
                    .any(|it| it.fact.revokes == one.fact.revokes)
            });
            if !later.is_empty() {
                log.note(later);
                log.flush().await?;
            }
            return Ok(None);
        }
        // This server's list has the end too, once it has responded.
        log.catch_up(store).await?;
        match store.read(&key).await?.record? {
            None => Err(StoreError::Unavailable(
                "another statement with its jti has ended".to_owned(),
            )),
            other => Ok(other),
        }
    }
}
