//! Changes to stored keys: read, decide, compare and swap. The loser of a race decides again on the
//! winner's keys; if many servers make the same change, only one succeeds.

use std::sync::Arc;

use wire::keys::signing_type::SigningType;

use super::reconcile::Plan;
use crate::keys::StoredKeys;
use crate::keys::pair::SigningKeyPair;
use crate::keys::pair::generation::generate;
use crate::keys::ring::{KeyRing, KeyRingError};
use crate::keys::store::{Entry, KeyStore, StoreError, within_timeout};

/// Each lost race is another server's change: only an endlessly changing store reaches this.
const ATTEMPTS: usize = 64;

#[derive(Debug)]
pub(crate) struct Updated {
    pub(crate) ring: KeyRing,
    /// A pair generated on the way, accepted by the store or not.
    pub(crate) generated: Option<Arc<SigningKeyPair>>,
    pub(crate) written: bool,
}

/// Changes the stored keys to the result of `decide`, which gets them and, on demand, a fresh pair.
///
/// # Errors
/// Those of the store and of `decide`.
pub(crate) async fn update(
    store: &dyn KeyStore,
    signing_type: SigningType,
    decide: impl Fn(&StoredKeys, Option<&Arc<SigningKeyPair>>) -> Result<Plan, StoreError>,
) -> Result<Updated, StoreError> {
    let mut stored = within_timeout(store.load()).await?;
    let mut generated = None;
    for _ in 0..ATTEMPTS {
        let ring = match decide(&stored, generated.as_ref())? {
            Plan::Keep(ring) => {
                let written = false;
                return Ok(Updated {
                    ring,
                    generated,
                    written,
                });
            }
            Plan::Write(ring) => ring,
            Plan::Generate => {
                generated = Some(fresh_pair(signing_type).await?);
                continue;
            }
        };
        let new = ring
            .to_stored()
            .map_err(|error| serialization_error(&error))?;
        let held = within_timeout(store.compare_and_swap(&stored, &new)).await?;
        if held == new {
            let written = true;
            return Ok(Updated {
                ring,
                generated,
                written,
            });
        }
        stored = held;
    }
    Err(StoreError::Unavailable(
        "the stored keys keep changing".to_owned(),
    ))
}

async fn fresh_pair(signing_type: SigningType) -> Result<Arc<SigningKeyPair>, StoreError> {
    let generated = tokio::task::spawn_blocking(move || {
        let stored = generate(signing_type).ok()?;
        SigningKeyPair::parse(signing_type, stored).ok()
    });
    match generated.await {
        Ok(Some(pair)) => Ok(Arc::new(pair)),
        _ => Err(StoreError::Unavailable(
            "no key pair could be generated".to_owned(),
        )),
    }
}

/// Returns an error without the cause, whose text may quote a key.
pub(super) fn serialization_error(error: &serde_json::Error) -> StoreError {
    StoreError::Unavailable(format!(
        "the keys cannot be written as JSON: {:?}",
        error.classify()
    ))
}

/// Returns an error that locates the faulty value.
pub(crate) fn unusable_keys(store: &dyn KeyStore, error: &KeyRingError) -> StoreError {
    let entry = match error {
        KeyRingError::Pair(error) => error.half().map_or(Entry::KeyPair, Entry::Half),
        KeyRingError::MalformedRing { .. }
        | KeyRingError::NewerRing(_)
        | KeyRingError::Next(_)
        | KeyRingError::Retired(_) => Entry::Ring,
    };
    StoreError::Unusable(format!("{}: {error}", store.location(entry)))
}
