//! Changes to stored keys: read, decide, commit. The loser of a race decides again on the winner's
//! keys; if many servers make the same change, only one succeeds.

use std::collections::BTreeSet;
use std::sync::Arc;

use postern_process::tasks;
use postern_token::keys::KeyId;
use postern_token::keys::signing_type::SigningType;

use super::StoredKeys;
use super::pair::SigningKeyPair;
use super::pair::generation::generate;
use super::records::{ATTEMPTS, HeldKeys, keep_changing};
use super::ring::{KeyRing, with_revoked};
use crate::store::StoreError;
use crate::store::open_store::OpenStore;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Use this ring, and write nothing.
    Keep(KeyRing),
    /// Write this ring in place of the stored one.
    Write(KeyRing),
    /// Plan again with a fresh pair.
    Generate,
}

#[derive(Debug)]
pub(crate) struct Updated {
    pub(crate) ring: KeyRing,
    /// A pair generated on the way, accepted by the store or not.
    pub(crate) generated: Option<Arc<SigningKeyPair>>,
    /// The keys as they were read, if they stay; `None` if new ones were written.
    pub(crate) kept: Option<HeldKeys>,
    /// True where the store had no pair before.
    pub(crate) was_empty: bool,
}

/// Changes the stored keys at `now` to the result of `decide`, which gets the stored keys and, on demand, a
/// fresh pair.
///
/// # Errors
/// The errors of the store and of `decide`.
pub(crate) async fn update(
    store: &OpenStore,
    (signing_type, now): (SigningType, i64),
    decide: impl Fn(&StoredKeys, Option<&Arc<SigningKeyPair>>) -> Result<Plan, StoreError>,
) -> Result<Updated, StoreError> {
    let mut generated = None;
    let mut held = store.read_keys().await?;
    for _ in 0..ATTEMPTS {
        let ring = match decide(&held.keys, generated.as_ref())? {
            Plan::Keep(ring) => {
                return Ok(Updated {
                    ring,
                    generated,
                    was_empty: false,
                    kept: Some(held),
                });
            }
            Plan::Write(ring) => ring,
            Plan::Generate => {
                // `decide` runs again on the same keys: if they are out of date the write conflicts.
                generated = Some(fresh_pair(signing_type).await?);
                continue;
            }
        };
        let ring = ring.in_next_generation(now);
        if write(store, &held, &ring.to_stored()?).await? {
            return Ok(Updated {
                ring,
                generated,
                kept: None,
                was_empty: held.keys.pair.is_none(),
            });
        }
        held = store.read_keys().await?;
    }
    Err(keep_changing())
}

/// Writes keys; returns false if others were written meanwhile.
async fn write(store: &OpenStore, held: &HeldKeys, new: &StoredKeys) -> Result<bool, StoreError> {
    match store.write_keys(held, new).await {
        Err(unclear @ StoreError::Unclear(_)) => {
            // The response was lost: the store knows. A fail-over could still lose the keys that were read: they
            // sign no token before this.
            let read = store.read_keys().await?;
            if read.keys != *new || !store.confirm(read.checks()).await? {
                return Err(unclear);
            }
            Ok(true)
        }
        clear => clear,
    }
}

/// Adds revoked keys to stored keys that cannot be used: an operator who repairs these may bring a revoked
/// key back while no server runs that knows of its revocation.
pub(crate) async fn keep_revoked(
    store: &OpenStore,
    revoked: &BTreeSet<KeyId>,
) -> Result<(), StoreError> {
    let held = store.read_keys().await?;
    let Some(ring) = with_revoked(held.keys.ring.as_ref(), revoked) else {
        return Ok(());
    };
    let new = StoredKeys {
        ring: Some(ring),
        ..held.keys.clone()
    };
    // After a conflict with another server the next poll tries again.
    store.write_keys(&held, &new).await.map(drop)
}

async fn fresh_pair(signing_type: SigningType) -> Result<Arc<SigningKeyPair>, StoreError> {
    match tasks::blocking(move || generate(signing_type)).await {
        Ok(Ok(pair)) => Ok(Arc::new(pair)),
        _ => Err(StoreError::Unavailable(
            "no key pair could be generated".to_owned(),
        )),
    }
}
