//! A dry run of a server's first synchronization.

use runtime::process::clock::unix_now;
use wire::keys::signing_type::SigningType;

use super::compare_and_swap::unusable_keys;
use super::missing_applications;
use super::reconcile::Reconciliation;
use crate::applications::records::ApplicationRecords;
use crate::applications::registry::ApplicationRegistry;
use crate::keys::ring::rotation::RotationPolicy;
use crate::keys::store::{KeyStore, StoreError, within_timeout};

/// Reads applications and keys in the order of a start.
///
/// # Errors
/// [`StoreError::Unusable`] where a server would not start, [`StoreError::Unavailable`] where it
/// would wait.
pub(crate) async fn preview(
    (store, records): (&dyn KeyStore, &ApplicationRecords),
    signing_type: SigningType,
    policy: &RotationPolicy,
    registrations: &ApplicationRegistry,
) -> Result<(), StoreError> {
    registrations.reconcile(&records.read().await?);
    if registrations.are_missing() {
        return Err(missing_applications(signing_type, store));
    }
    let stored = within_timeout(store.load()).await?;
    let reconciliation = Reconciliation {
        signing_type,
        policy,
        memory: None,
        time: unix_now().into(),
        is_settled: false,
        over: None,
    };
    let plan = reconciliation.plan(&stored, None);
    plan.map(drop).map_err(|error| unusable_keys(store, &error))
}
