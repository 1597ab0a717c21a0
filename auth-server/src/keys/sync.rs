//! Keeps the keys and the applications in memory in step with the store: a look at the start, one
//! every re-read period and whenever a key's own time comes, retries while the store is away. It
//! never signs, and it never lets anything sign with a pair that the store did not take.

pub(crate) mod backoff;
pub(crate) mod compare_and_swap;
pub(crate) mod preview;
pub(crate) mod reconcile;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use contract::explain::report::moment;
use contract::keys::signing_type::SigningType;
use runtime::clock::{unix_now, until};
use runtime::health::{Condition, Health};
use runtime::sanitize::LogText;
use tracing::{debug, error, info, warn};

use self::backoff::next_look;
use self::compare_and_swap::{not_written, unusable_keys, update};
use self::reconcile::Reconciliation;
use super::clock::ClockSkew;
use super::live::CurrentKey;
use super::pair::SigningKeyPair;
use super::published::PublishedKeys;
use super::ring::events::events;
use super::ring::rotation::RotationPolicy;
use super::ring::{KeyRing, with_revoked};
use super::store::{Entry, KeyStore, StoreError, within_timeout};
use crate::applications::registry::{Registrations, Restored};
use crate::audit;
use crate::metrics::Metrics;

/// What is kept in step, for whoever serves it.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) current: Arc<CurrentKey>,
    pub(crate) registrations: Arc<Registrations>,
    pub(crate) metrics: Metrics,
}

/// The loop's state.
pub(crate) struct Upkeep {
    store: Arc<dyn KeyStore>,
    signing_type: SigningType,
    policy: RotationPolicy,
    shared: Shared,
    key_condition: Condition,
    store_condition: Condition,
    skew: ClockSkew,
    /// What is wrong with the store although this server can serve; `/readyz` shows it.
    trouble: Arc<ArcSwapOption<String>>,
    /// Looks that failed in a row.
    failures: u32,
    /// What the last one failed with, so that an outage is one line and not one every second.
    last_failure: Option<StoreError>,
}

impl Upkeep {
    pub(crate) fn new(
        store: Arc<dyn KeyStore>,
        signing_type: SigningType,
        policy: RotationPolicy,
        shared: Shared,
        health: &Health,
    ) -> Self {
        let trouble = Arc::<ArcSwapOption<String>>::default();
        let note = Arc::clone(&trouble);
        let note = move || note.load().as_deref().cloned();
        let unread = "the store was not read yet";
        Self {
            store,
            signing_type,
            policy,
            shared,
            key_condition: health.condition("signing_key", unread),
            store_condition: health.condition_with_note("store", unread, note),
            skew: ClockSkew::default(),
            trouble,
            failures: 0,
            last_failure: None,
        }
    }

    /// The first look. A store that is away stops no start.
    ///
    /// # Errors
    /// A store that must not be used is a configuration error, and for the caller to report.
    pub(crate) async fn start(&mut self) -> Result<(), StoreError> {
        let now = unix_now();
        match self.synchronize(now).await {
            Err(unusable @ StoreError::Unusable(_)) => Err(unusable),
            outcome => {
                self.report(outcome, now);
                Ok(())
            }
        }
    }

    /// Looks again for as long as the process lives.
    pub(crate) async fn run(mut self, reread: Duration) {
        loop {
            let due_in = self.next_due().map(until);
            let jitter = crate::random::fraction();
            tokio::time::sleep(next_look(reread, self.failures, jitter, due_in)).await;
            self.look(unix_now()).await;
        }
    }

    /// `now` and the times below are this machine's until a ring comes in.
    async fn look(&mut self, now: i64) {
        let mut outcome = self.synchronize(now).await;
        if outcome.is_err()
            && let Err(failure) = self.advance_alone(now)
        {
            outcome = Err(failure);
        }
        self.report(outcome, now);
    }

    fn next_due(&self) -> Option<i64> {
        let keys = self.shared.current.published()?;
        let due = keys.ring().next_due(&self.policy)?;
        Some(self.skew.to_machine(due))
    }

    async fn synchronize(&self, now: i64) -> Result<(), StoreError> {
        if self.shared.current.load().is_none() {
            // A key is never there while it is unknown who may have it.
            self.synchronize_applications().await?;
            return self.synchronize_keys(now).await;
        }
        // Neither waits for the other: a revocation counts whatever became of the applications.
        let (applications, keys) =
            tokio::join!(self.synchronize_applications(), self.synchronize_keys(now));
        keys.and(applications)
    }

    async fn synchronize_keys(&self, now: i64) -> Result<(), StoreError> {
        self.compare_clocks().await?;
        let keys = self.shared.current.published();
        let memory = keys.as_deref().map(PublishedKeys::ring);
        let reconciliation = Reconciliation {
            signing_type: self.signing_type,
            policy: &self.policy,
            memory,
            time: self.skew.time(now),
            is_settled: keys.as_deref().is_some_and(|keys| self.is_settled(keys)),
        };
        let updated = update(&*self.store, self.signing_type, |stored, fresh| {
            let plan = reconciliation.plan(stored, fresh);
            plan.map_err(|fault| unusable_keys(&*self.store, &fault))
        });
        let updated = match updated.await {
            Err(unusable @ StoreError::Unusable(_)) => {
                self.carry_revocations(memory).await?;
                return Err(unusable);
            }
            updated => updated?,
        };
        if updated.written && memory == Some(&updated.ring) {
            info!("the keys in memory were put back into the store");
        }
        self.take_over(memory, updated.ring, updated.generated.as_deref())
    }

    /// Each retired key has been one for as long as its tokens last, and the next one was announced
    /// to everybody.
    fn is_settled(&self, keys: &PublishedKeys) -> bool {
        let seconds = self.policy.keep.max(self.policy.lead);
        u64::try_from(seconds).is_ok_and(|seconds| keys.age() >= Duration::from_secs(seconds))
    }

    async fn compare_clocks(&self) -> Result<(), StoreError> {
        let was_noticeable = self.skew.is_noticeable();
        self.skew.measure(&*self.store).await?;
        let skew_seconds = self.skew.seconds();
        self.shared.metrics.clock_skew(skew_seconds);
        match (was_noticeable, self.skew.is_noticeable()) {
            (false, true) => warn!(
                skew_seconds,
                "this machine's clock differs from the key store's: other servers and sidecars may refuse its tokens"
            ),
            (true, false) => info!(skew_seconds, "the clocks agree again"),
            _ => {}
        }
        Ok(())
    }

    /// Keys that nobody can use stay as they are; but whoever repairs them, or starts then, has to
    /// find which keys were revoked.
    async fn carry_revocations(&self, memory: Option<&KeyRing>) -> Result<(), StoreError> {
        let Some(memory) = memory else {
            return Ok(());
        };
        let stored = within_timeout(self.store.load()).await?;
        if let Some(new) = with_revoked(&stored, memory.revoked()) {
            within_timeout(self.store.compare_and_swap(&stored, &new)).await?;
        }
        Ok(())
    }

    /// What becomes due while the store is away happens in memory: the next key is in the store
    /// already, and everybody expects it to sign from now on.
    fn advance_alone(&self, now: i64) -> Result<(), StoreError> {
        let Some(keys) = self.shared.current.published() else {
            return Ok(());
        };
        let time = self.skew.time(now);
        let advanced = keys.ring().clone().advance(time, &self.policy);
        self.take_over(Some(keys.ring()), advanced, None)
    }

    fn take_over(
        &self,
        memory: Option<&KeyRing>,
        ring: KeyRing,
        generated: Option<&SigningKeyPair>,
    ) -> Result<(), StoreError> {
        if memory == Some(&ring) {
            return Ok(());
        }
        let events = events(memory, &ring, generated.map(SigningKeyPair::id));
        let keys =
            PublishedKeys::new(self.signing_type, ring).map_err(|error| not_written(&error))?;
        events.iter().for_each(audit::key);
        self.shared.metrics.keys(keys.ring(), &events);
        self.shared.current.replace(keys);
        Ok(())
    }

    async fn synchronize_applications(&self) -> Result<(), StoreError> {
        let stored = within_timeout(self.store.applications()).await?;
        let was_open = self.shared.registrations.admit_anybody();
        let reconciled = self.shared.registrations.reconcile(stored);
        self.tell_how_many(was_open);
        for (id, event) in &reconciled.events {
            audit::application(id, *event);
        }
        for Restored { id, stored, record } in &reconciled.restored {
            // Where another server was quicker, its record counts from the next look on.
            let swap = self
                .store
                .swap_application(id, stored.as_ref(), record, None);
            if within_timeout(swap).await? {
                info!(app_id = %id, "the application was put back into the store");
            }
        }
        if self.shared.registrations.are_missing() {
            return Err(missing_applications(self.signing_type, &*self.store));
        }
        Ok(())
    }

    fn unreadable_note(&self) -> Option<String> {
        let ids = self.shared.registrations.unreadable();
        self.shared.metrics.unreadable_applications(ids.len());
        let first = ids.first()?;
        Some(format!(
            "{}: {} record(s) cannot be read, the first is of {}: such an application is admitted only by a \
             server that could read it before",
            self.store.whereabouts(Entry::Applications),
            ids.len(),
            LogText(first)
        ))
    }

    fn far_off_note(&self, now: i64) -> Option<String> {
        let keys = self.shared.current.published()?;
        let next = keys.ring().next()?;
        let is_far_off = keys.ring().next_is_far_off(now, self.policy.lead);
        is_far_off.then(|| {
            format!(
                "the next key {} signs only from {}: auth-server keys rotate brings it forward",
                next.pair.id(),
                moment(next.signs_from)
            )
        })
    }

    /// The last one that is removed opens the key endpoint: nobody may miss that.
    fn tell_how_many(&self, was_open: bool) {
        let registrations = &self.shared.registrations;
        let count = registrations.count().unwrap_or_default();
        self.shared.metrics.registered_applications(count);
        if registrations.admit_anybody() && !was_open {
            warn!(
                "no application is registered: any appId with any appSecret may fetch the verification key"
            );
        }
    }

    fn report(&mut self, outcome: Result<(), StoreError>, now: i64) {
        self.shared.metrics.store_up(outcome.is_ok());
        match outcome {
            Ok(()) => self.report_success(self.skew.time(now).latest),
            Err(failure) => self.report_failure(failure),
        }
    }

    fn report_success(&mut self, now: i64) {
        if self.failures > 0 {
            info!("the key store is back");
        }
        self.failures = 0;
        self.last_failure = None;
        // The store has logged it.
        let unfinished = self.store.unfinished().map(|cause| cause.to_string());
        let is_news = unfinished.is_none();
        let notes = [unfinished, self.unreadable_note(), self.far_off_note(now)];
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        let note = (!notes.is_empty()).then(|| Arc::new(notes.join("; ")));
        let before = self.trouble.swap(note.clone());
        if let Some(note) = note.filter(|note| is_news && before.as_ref() != Some(note)) {
            warn!("{note}");
        }
        self.key_condition.met();
        self.store_condition.met();
    }

    fn report_failure(&mut self, failure: StoreError) {
        self.failures = self.failures.saturating_add(1);
        let has_key = self.shared.current.load().is_some();
        if has_key {
            // Every server meets the same store: with a wrong password, or with a value that nobody can use,
            // all of them would go out of service at once, while each of them serves as well as before.
            self.trouble.store(Some(Arc::new(failure.to_string())));
        } else {
            self.key_condition.unmet(failure.to_string());
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

/// Why no key is made or loaded while [`Registrations::are_missing`].
pub(super) fn missing_applications(signing_type: SigningType, store: &dyn KeyStore) -> StoreError {
    StoreError::Unusable(format!(
        "--signing-type {signing_type} hands the signing secret to whoever may fetch the key, and no application is \
         registered yet: run auth-server application add --store {} --app-id ID",
        store.whereabouts(Entry::Store)
    ))
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
