//! The applications in memory, and what an appId with its appSecret is allowed.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use contract::rejection::Rejection;

use super::secret_hash::SecretHashes;
use super::{AppId, Applications};

/// Who may fetch the verification key at present; nothing until the store was read once.
#[derive(Debug)]
pub(crate) struct Registrations {
    known: ArcSwapOption<Applications>,
    /// With hmac the key is the secret that mints tokens: nobody gets it unchecked.
    required: bool,
}

impl Registrations {
    pub(crate) fn new(required: bool) -> Self {
        Self {
            known: ArcSwapOption::empty(),
            required,
        }
    }

    /// Accepts any pair while no application is registered (contract §4.3 rule 2), unless
    /// registrations are required.
    ///
    /// # Errors
    /// [`Rejection::StoreUnavailable`] before the store was read: until then nobody knows whether
    /// pairs are to be checked. [`Rejection::ApplicationUnknown`] for an unknown id and for a wrong
    /// secret alike.
    pub(crate) fn authorize(&self, id: &str, secret: &str) -> Result<(), Rejection> {
        match self.known.load().as_deref() {
            None => Err(Rejection::StoreUnavailable),
            Some(none) if none.is_empty() && self.required => Err(Rejection::StoreUnavailable),
            Some(none) if none.is_empty() => Ok(()),
            Some(some) if some.admits(id, secret) => Ok(()),
            Some(_) => Err(Rejection::ApplicationUnknown),
        }
    }

    /// Takes over what the store holds and returns what has to be put back into it.
    ///
    /// An empty list never opens a check that was closed: then the store has lost the applications
    /// (FLUSHALL, a failover to an empty replica) and gets back those in memory.
    pub(crate) fn reconcile(&self, stored: Applications) -> Vec<(AppId, SecretHashes)> {
        match self.known.load().as_deref() {
            Some(memory) if stored.is_empty() && !memory.is_empty() => memory
                .iter()
                .map(|(id, secrets)| (id.clone(), secrets.clone()))
                .collect(),
            _ => {
                self.known.store(Some(Arc::new(stored)));
                Vec::new()
            }
        }
    }

    /// Whether no application is registered, as far as the store was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.known
            .load()
            .as_deref()
            .is_none_or(Applications::is_empty)
    }

    /// Whether an application has to be registered before the key may be used at all.
    pub(crate) fn are_missing(&self) -> bool {
        self.required && self.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn orders() -> Applications {
        let mut all = Applications::default();
        all.add("orders".parse().unwrap(), SecretHashes::of("right"));
        all
    }

    #[test]
    fn nothing_is_allowed_before_the_store_was_read() {
        let registrations = Registrations::new(false);
        assert_eq!(
            registrations.authorize("any", "pair"),
            Err(Rejection::StoreUnavailable)
        );
        assert!(registrations.is_empty());
    }

    #[test]
    fn contract_4_3_rule_2_without_registrations_any_pair_is_accepted() {
        let registrations = Registrations::new(false);
        assert!(registrations.reconcile(Applications::default()).is_empty());
        assert_eq!(registrations.authorize("any", "pair"), Ok(()));
        assert!(!registrations.are_missing());
    }

    #[test]
    fn where_registrations_are_required_none_means_closed() {
        let registrations = Registrations::new(true);
        assert!(registrations.are_missing());
        registrations.reconcile(Applications::default());
        assert_eq!(
            registrations.authorize("any", "pair"),
            Err(Rejection::StoreUnavailable)
        );
        assert!(registrations.are_missing());
        registrations.reconcile(orders());
        assert_eq!(registrations.authorize("orders", "right"), Ok(()));
        assert!(!registrations.are_missing());
    }

    #[test]
    fn the_first_registration_closes_the_check() {
        let registrations = Registrations::new(false);
        registrations.reconcile(Applications::default());
        registrations.reconcile(orders());
        assert_eq!(registrations.authorize("orders", "right"), Ok(()));
        for (id, secret) in [("orders", "wrong"), ("any", "right")] {
            assert_eq!(
                registrations.authorize(id, secret),
                Err(Rejection::ApplicationUnknown)
            );
        }
    }

    #[test]
    fn a_store_that_lost_the_applications_gets_them_back_and_opens_nothing() {
        let registrations = Registrations::new(false);
        registrations.reconcile(orders());
        let lost = registrations.reconcile(Applications::default());
        let ids: Vec<_> = lost.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["orders"]);
        assert_eq!(
            registrations.authorize("any", "pair"),
            Err(Rejection::ApplicationUnknown)
        );
        assert_eq!(registrations.authorize("orders", "right"), Ok(()));
    }
}
