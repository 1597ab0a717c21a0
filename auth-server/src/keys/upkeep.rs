//! Keeps the pair and the applications in memory in step with the store: a look at the start, one
//! every re-read period, retries while the store is away. It never signs, and it never lets anything
//! sign with a pair that the store did not take.

use std::sync::Arc;
use std::time::Duration;

use contract::signing_type::SigningType;
use process::health::{Condition, Health};
use tracing::{debug, error, info, warn};

use super::StoredKeyPair;
use super::current::CurrentKey;
use super::generation::generate;
use super::key_pair::SigningKeyPair;
use super::lifecycle::{Step, next_look, next_step};
use super::store::{Entry, KeyStore, StoreError, unusable_pair, within_timeout};
use crate::applications::registrations::Registrations;
use crate::metrics::Metrics;

/// The loop's state.
pub(crate) struct Upkeep {
    store: Arc<dyn KeyStore>,
    signing_type: SigningType,
    current: Arc<CurrentKey>,
    registrations: Arc<Registrations>,
    metrics: Metrics,
    key_condition: Condition,
    store_condition: Condition,
    /// Looks that failed in a row.
    failures: u32,
    /// What the last one failed with, so that an outage is one line and not one every second.
    last_failure: Option<StoreError>,
}

impl Upkeep {
    pub(crate) fn new(
        store: Arc<dyn KeyStore>,
        signing_type: SigningType,
        current: Arc<CurrentKey>,
        registrations: Arc<Registrations>,
        metrics: Metrics,
        health: &Health,
    ) -> Self {
        Self {
            store,
            signing_type,
            current,
            registrations,
            metrics,
            key_condition: health.condition("signing_key", "the store was not read yet"),
            store_condition: health.condition("store", "the store was not read yet"),
            failures: 0,
            last_failure: None,
        }
    }

    /// The first look. A store that is away stops no start.
    ///
    /// # Errors
    /// A store that must not be used is a configuration error, and for the caller to report.
    pub(crate) async fn start(&mut self) -> Result<(), StoreError> {
        match self.synchronize().await {
            Err(unusable @ StoreError::Unusable(_)) => Err(unusable),
            outcome => {
                self.report(outcome);
                Ok(())
            }
        }
    }

    /// Looks again for as long as the process lives.
    pub(crate) async fn run(mut self, reread: Duration) {
        loop {
            tokio::time::sleep(next_look(reread, self.failures, crate::random::fraction())).await;
            let outcome = self.synchronize().await;
            self.report(outcome);
        }
    }

    async fn synchronize(&self) -> Result<(), StoreError> {
        // Before the key: a key is never there while it is unknown who may have it.
        self.synchronize_applications().await?;
        let stored = within_timeout(self.store.load()).await?;
        let candidate = match self.next_step(stored)? {
            Step::Keep => return Ok(()),
            Step::Adopt(pair) => {
                self.adopt(*pair, "adopted");
                return Ok(());
            }
            Step::Reinstall(mine) => mine,
            Step::Generate => self.generate().await?,
        };
        let winner = within_timeout(self.store.adopt_or_install(&candidate)).await?;
        let how = if winner == candidate {
            "installed"
        } else {
            "adopted"
        };
        match self.next_step(Some(winner))? {
            Step::Adopt(pair) => self.adopt(*pair, how),
            _ => info!("the key pair in memory was put back into the store"),
        }
        Ok(())
    }

    async fn synchronize_applications(&self) -> Result<(), StoreError> {
        let stored = within_timeout(self.store.applications()).await?;
        for (id, secrets) in self.registrations.reconcile(stored) {
            within_timeout(self.store.add_application(&id, &secrets)).await?;
            info!(app_id = %id, "the application was put back into the store");
        }
        if self.registrations.are_missing() {
            return Err(StoreError::Unusable(format!(
                "--signing-type {} hands the signing secret to whoever may fetch the key, and no application is \
                 registered yet: run auth-server application add --store {} --app-id ID",
                self.signing_type,
                self.store.whereabouts(Entry::Store)
            )));
        }
        Ok(())
    }

    fn next_step(&self, stored: Option<StoredKeyPair>) -> Result<Step, StoreError> {
        next_step(self.signing_type, self.current.load().as_deref(), stored)
            .map_err(|fault| unusable_pair(&*self.store, &fault))
    }

    async fn generate(&self) -> Result<StoredKeyPair, StoreError> {
        let signing_type = self.signing_type;
        let generated = tokio::task::spawn_blocking(move || generate(signing_type)).await;
        match generated {
            Ok(Ok(pair)) => Ok(pair),
            _ => Err(StoreError::Unavailable(
                "no key pair could be generated".to_owned(),
            )),
        }
    }

    fn adopt(&self, pair: SigningKeyPair, how: &'static str) {
        info!(kid = %pair.id(), signing_type = %self.signing_type, how, "signing key pair");
        if self.current.load().is_none() && self.registrations.is_empty() {
            warn!(
                "no application is registered: any appId with any appSecret may fetch the verification key"
            );
        }
        self.current.replace(pair);
    }

    fn report(&mut self, outcome: Result<(), StoreError>) {
        self.metrics.store_up(outcome.is_ok());
        match outcome {
            Ok(()) => self.report_success(),
            Err(failure) => self.report_failure(failure),
        }
    }

    fn report_success(&mut self) {
        if self.failures > 0 {
            info!("the key store is back");
        }
        self.failures = 0;
        self.last_failure = None;
        self.key_condition.met();
        self.store_condition.met();
    }

    fn report_failure(&mut self, failure: StoreError) {
        self.failures = self.failures.saturating_add(1);
        let has_key = self.current.load().is_some();
        if !has_key {
            self.key_condition.unmet(failure.to_string());
        }
        // A store that is merely away does not make a server with a key less able to serve, and
        // taking every replica out of service for it would.
        if !has_key || matches!(failure, StoreError::Unusable(_)) {
            self.store_condition.unmet(failure.to_string());
        }
        if self.last_failure.as_ref() == Some(&failure) {
            debug!(%failure, "the key store still fails");
        } else {
            log_failure(&failure, has_key);
        }
        self.last_failure = Some(failure);
    }
}

fn log_failure(failure: &StoreError, has_key: bool) {
    let consequence = if has_key {
        "serving with the key in memory"
    } else {
        "no key: login and key answer 503"
    };
    match failure {
        StoreError::Unavailable(_) => warn!(%failure, consequence, "the key store is away"),
        StoreError::Unusable(_) => error!(%failure, consequence, "the key store is unusable"),
    }
}

#[cfg(test)]
mod tests;
