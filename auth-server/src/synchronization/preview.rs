//! A dry run of a server's first synchronization.

use wire::keys::signing_type::SigningType;

use super::missing_applications;
use crate::applications::records::ApplicationRecords;
use crate::applications::registry::ApplicationRegistry;
use crate::keys::records::KeyRecords;
use crate::keys::ring::KeyRing;
use crate::store::StoreError;

/// Reads applications and keys in the order of a start.
///
/// # Errors
/// [`StoreError::Unusable`] where a server would not start, [`StoreError::Unavailable`] where it
/// would wait.
pub(crate) async fn preview(
    (keys, applications): (&KeyRecords, &ApplicationRecords),
    signing_type: SigningType,
    registrations: &ApplicationRegistry,
) -> Result<(), StoreError> {
    let held = keys.read().await?;
    registrations.reconcile(&applications.read().await?);
    if registrations.are_missing() {
        return Err(missing_applications(signing_type, &keys.location));
    }
    let ring = KeyRing::parse(signing_type, &held.keys);
    ring.map(drop).map_err(|error| keys.unusable(&error))
}
