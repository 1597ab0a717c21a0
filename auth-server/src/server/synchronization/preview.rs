//! A dry run of a server's first synchronization.

use super::missing_applications;
use crate::config::Config;
use crate::keys::ring::KeyRing;
use crate::store::StoreError;
use crate::store::open_store::OpenStore;

/// Reads applications and keys in the order of a start.
///
/// # Errors
/// [`StoreError::Unusable`] where a server would not start, [`StoreError::Unavailable`] where it
/// would wait.
pub(crate) async fn preview(store: &OpenStore, config: &Config) -> Result<(), StoreError> {
    let registrations = config.registrations();
    let held = store.read_keys().await?;
    registrations.reconcile(Some(store.read_applications().await?.document()?));
    if registrations.are_missing() {
        return Err(missing_applications(&store.location));
    }
    KeyRing::parse(config.signing_type, &held.keys)
        .map(drop)
        .map_err(|error| store.unusable_keys(&error))
}
