//! Synchronizes keys, applications and revocations in memory with the store: at the start, once per poll
//! interval, when a key becomes due, and with retries while the store is unavailable.
//!
//! Nothing here signs, and no pair is used for signing that the store has not accepted.

pub(crate) mod poll_pause;
pub(crate) mod preview;

use std::sync::Arc;
use std::time::Duration;

use postern_process::clock::{unix_now, until};
use postern_token::times::moment;
use postern_transport::admin::health::{Condition, Health};
use tracing::{debug, error, info, warn};

use self::poll_pause::next_poll;
use crate::http::app::App;
use crate::keys::pair::SigningKeyPair;
use crate::keys::plan::Planner;
use crate::keys::published::PublishedKeys;
use crate::keys::ring::KeyRing;
use crate::keys::ring::events::events;
use crate::keys::update::{keep_revoked, update};
use crate::random::fraction;
use crate::revocations::Revocation;
use crate::store::StoreError;
use crate::telemetry::audit;
use crate::telemetry::metrics::gauge;

pub(crate) struct Synchronization {
    app: Arc<App>,
    /// The readiness of the store; its note is an error that does not keep this server from serving.
    store_condition: Condition,
    failures: u32,
    /// The time of the first of these failures, by this machine's clock.
    failing_since: i64,
    /// The failure that was logged last, so that an outage is one line, not one per retry.
    last_failure: Option<StoreError>,
}

impl Synchronization {
    pub(crate) fn new(app: Arc<App>, health: &Health) -> Self {
        Self {
            app,
            store_condition: health.condition("store", "the store was not read yet"),
            failures: 0,
            failing_since: 0,
            last_failure: None,
        }
    }

    /// Synchronizes for the first time. An unavailable store does not fail the start.
    ///
    /// # Errors
    /// An unusable store, which is a configuration error for the caller to report.
    pub(crate) async fn start(&mut self) -> Result<(), StoreError> {
        match self.synchronize(unix_now()).await {
            Err(unusable @ StoreError::Unusable(_)) => Err(unusable),
            outcome => {
                self.report(outcome);
                Ok(())
            }
        }
    }

    /// Synchronizes for as long as the process lives.
    pub(crate) async fn run(mut self, poll_interval: Duration) {
        loop {
            tokio::time::sleep(self.pause(poll_interval)).await;
            self.poll(unix_now()).await;
        }
    }

    /// Returns the time until the next poll.
    pub(crate) fn pause(&self, poll_interval: Duration) -> Duration {
        let due_in = self.next_due().map(until);
        next_poll(poll_interval, self.failures, fraction(), due_in)
    }

    /// Returns true if the last poll failed.
    #[cfg(feature = "simulation")]
    pub(crate) const fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Synchronizes once; `now` is the time of this machine's clock.
    pub(crate) async fn poll(&mut self, now: i64) {
        let mut outcome = self.synchronize(now).await;
        // With an unclear commit the store was read: it may lack a next key that is due in memory.
        let is_away = outcome.is_err() && !matches!(outcome, Err(StoreError::Unclear(_)));
        if is_away && let Err(failure) = self.advance_offline(now) {
            outcome = Err(failure);
        }
        self.report(outcome);
    }

    fn next_due(&self) -> Option<i64> {
        let due = self
            .app
            .live_keys
            .load_full()?
            .ring
            .next_due(&self.app.config.rotation)?;
        Some(self.app.store.clock.to_machine(due))
    }

    async fn synchronize(&self, now: i64) -> Result<(), StoreError> {
        // Where nothing has changed nothing is written, and the next logout would be the first to fail. Checked
        // before anything is read: a former primary, which may be left meanwhile, confirms nothing.
        let checked = self.app.store.call().await?.check().await;
        self.synchronize_parts(now).await?;
        checked
    }

    async fn synchronize_parts(&self, now: i64) -> Result<(), StoreError> {
        if self.app.live_keys.load().is_none() {
            // The keys come last: the store's encryption decides which applications count, no key may be
            // served before the applications are known, and no token accepted before the revocations are.
            self.app.store.read_keys().await?;
            self.synchronize_applications().await?;
            self.compare_clocks().await?;
            self.app.revocations.catch_up(&self.app.store).await?;
            self.app.revocations.check_known()?;
            self.synchronize_keys(now).await?;
            self.end_removed_applications();
            // After the keys: a store that cannot confirm, as without its replica, keeps no server from old ones.
            return self.app.revocations.poll().await;
        }
        self.compare_clocks().await?;
        // Revocations are read independently: they count whatever happens to keys and applications.
        let documents = async {
            // The keys first: they show the state of the store's encryption.
            self.synchronize_keys(now)
                .await
                .and(self.synchronize_applications().await)
        };
        let revocations = self.app.revocations.poll();
        let (documents, revocations) = tokio::join!(documents, revocations);
        // What the documents have ended; the next poll may be a day away.
        self.end_removed_applications();
        let noted = self.app.revocations.flush().await;
        documents.and(revocations).and(noted)
    }

    async fn synchronize_keys(&self, machine: i64) -> Result<(), StoreError> {
        let store = &self.app.store;
        let config = &self.app.config;
        let signing_type = config.signing_type;
        let now = store.clock.store_time(machine);
        let keys = self.app.live_keys.load_full();
        let memory = keys.as_deref().map(|keys| &keys.ring);
        let planner = Planner {
            signing_type,
            policy: &config.rotation,
            memory,
            now,
        };
        let updated = update(store, (signing_type, now), |stored, fresh| {
            planner
                .plan(stored, fresh)
                .map_err(|error| store.unusable_keys(&error))
        })
        .await;
        if let (Err(StoreError::Unusable(_)), Some(memory)) = (&updated, memory) {
            keep_revoked(store, memory.revoked()).await?;
        }
        let updated = updated?;
        // A running server writes its keys back after a fail-over. This one has none yet, and the commit of what it read
        // may have been unclear to its author.
        if let Some(kept) = &updated.kept
            && memory.is_none()
            && updated.ring.has_new_key(now)
            && !store.confirm(kept.checks()).await?
        {
            return Err(StoreError::changed());
        }
        if updated.was_empty && memory.is_some() {
            warn!(
                "the store had lost its keys: servers write back those that they have, applications and \
                 revocations too; sessions are lost, and their users log in again"
            );
        } else if updated.kept.is_none() {
            info!("the keys were written to the store");
        }
        self.install(memory, updated.ring, updated.generated.as_deref())
    }

    async fn compare_clocks(&self) -> Result<(), StoreError> {
        let clock = &self.app.store.clock;
        let was_noticeable = clock.is_noticeable();
        clock.measure(&*self.app.store.call().await?).await?;
        let skew_seconds = clock.skew_seconds();
        self.app.metrics.clock_skew_seconds.set(skew_seconds);
        match (was_noticeable, clock.is_noticeable()) {
            (false, true) => warn!(
                skew_seconds,
                "this machine's clock differs from the store's, which counts in keys and tokens"
            ),
            (true, false) => info!(skew_seconds, "the clocks agree again"),
            _ => {}
        }
        Ok(())
    }

    /// Takes due steps in memory while the store is unavailable: the store already holds the next
    /// key, and sidecars expect it to sign when its time comes.
    fn advance_offline(&self, machine: i64) -> Result<(), StoreError> {
        let Some(keys) = self.app.live_keys.load_full() else {
            return Ok(());
        };
        let now = self.app.store.clock.store_time(machine);
        let advanced = keys.ring.clone().advance(now, &self.app.config.rotation);
        self.install(Some(&keys.ring), advanced, None)
    }

    fn install(
        &self,
        memory: Option<&KeyRing>,
        ring: KeyRing,
        generated: Option<&SigningKeyPair>,
    ) -> Result<(), StoreError> {
        if memory == Some(&ring) {
            return Ok(());
        }
        let events = events(memory, &ring, generated.map(SigningKeyPair::id));
        let keys = PublishedKeys::new(self.app.config.signing_type, ring)?;
        for event in &events {
            audit::key(event, None);
        }
        let listed = keys.ring.listed();
        let named = listed.map(|it| (it.key.id().to_string(), it.role.name()));
        self.app.metrics.keys(named);
        self.app.live_keys.store(Some(Arc::new(keys)));
        Ok(())
    }

    async fn synchronize_applications(&self) -> Result<(), StoreError> {
        let store = &self.app.store;
        let registrations = &self.app.registrations;
        let held = store.read_applications().await?;
        let was_open = registrations.accepts_any();
        let document = held.document();
        let reconciled = registrations.reconcile(document.clone().ok());
        let registered = &self.app.metrics.registered_applications;
        registered.set(gauge(registrations.count()));
        // The removal of the last application opens the key endpoint.
        if registrations.accepts_any() && !was_open {
            warn!(
                "no application is registered: any appId with any appSecret may fetch the verification key"
            );
        }
        // `end_removed_applications` misses two: a removal without a record, as in a store that was rolled back, and
        // tokens that this server issued more than two polls after a removal.
        for id in &reconciled.ended {
            // As of now, not as of the start of the poll: this server may have issued tokens meanwhile.
            let revocation = Revocation::for_application(id.to_string(), store.clock.now());
            self.app.revocations.note([revocation]);
        }
        // If another server was faster, its document counts from the next poll on.
        if let Some(restored) = &reconciled.restored
            && store.write_applications(held.version, restored).await?
        {
            info!("the applications were restored to the store");
        }
        document?;
        if registrations.are_missing() {
            return Err(missing_applications(&store.location));
        }
        Ok(())
    }

    /// Revokes the tokens that removed applications have obtained until all servers knew of it: from a server that
    /// has ended meanwhile too.
    fn end_removed_applications(&self) {
        let now = self.app.store.clock.now();
        // Two polls: one may fail or take long.
        let polls = 2 * self.app.config.store_poll_interval.as_secs().cast_signed();
        let mut revocations = Vec::new();
        for (id, removed) in self.app.registrations.removals() {
            // The clock was set back since: each poll would add another revocation.
            if removed.saturating_sub(polls) > now {
                continue;
            }
            let known = now.min(removed.saturating_add(polls));
            revocations.push(Revocation::for_application(id.to_string(), known));
        }
        self.app.revocations.note_lacking(&revocations);
    }

    fn report(&mut self, outcome: Result<(), StoreError>) {
        self.app.metrics.store_up.set(outcome.is_ok().into());
        if let Err(failure) = outcome {
            return self.report_failure(failure);
        }
        if self.failures > 0 {
            info!("the key store is available again");
        }
        self.failures = 0;
        self.last_failure = None;
        // Otherwise the first login long after an outage would get no refresh token.
        self.app.sessions.remove_unclear();
        let clock = &self.app.store.clock;
        let skew = clock.skew_seconds();
        self.store_condition
            .warn(clock.is_noticeable().then_some(format!(
                "this machine's clock is {skew:+} s off the store's, which counts"
            )));
        self.store_condition.set_ready();
    }

    fn report_failure(&mut self, failure: StoreError) {
        if self.failures == 0 {
            self.failing_since = unix_now();
        }
        self.failures = self.failures.saturating_add(1);
        let has_key = self.app.live_keys.load().is_some();
        let consequence = match &failure {
            _ if !has_key => "no key: login and key respond with 503",
            StoreError::Unusable(_) | StoreError::Replaced(_) => "serving with the keys in memory",
            _ => AWAY,
        };
        // One that cannot open the keys, or has lost its files, would miss every later revocation.
        let is_cut_off =
            self.app.store.encryption.lacks_key() || matches!(failure, StoreError::Replaced(_));
        if has_key && !is_cut_off {
            // All servers share the store: over a wrong password or an unusable value all would go
            // out of service at once, although each can still serve.
            let since = moment(self.failing_since);
            self.store_condition
                .warn(Some(format!("{failure}; since {since}: {consequence}")));
            // Also after a start on a store that can be read and not be written.
            self.store_condition.set_ready();
        } else {
            self.store_condition.set_not_ready(failure.to_string());
        }
        if self.last_failure.as_ref() == Some(&failure) {
            debug!(%failure, "the key store still fails");
        } else {
            log_failure(&failure, consequence);
        }
        self.last_failure = Some(failure);
    }
}

/// The effect of a store that is away on a server with keys.
const AWAY: &str = "serving with the keys in memory; a login gets no refresh token; a logout, a \
     refresh or a revocation gets 503";

/// Returns the error where an application has to be registered first: no key is made or loaded then.
fn missing_applications(location: &str) -> StoreError {
    StoreError::Unusable(format!(
        "--signing-type hmac gives the signing secret to every client that fetches the key, and no application \
         is registered yet: run auth-server application add --store {location} --app-id ID"
    ))
}

fn log_failure(failure: &StoreError, consequence: &str) {
    match failure {
        StoreError::Unavailable(_) | StoreError::Unclear(_) | StoreError::Busy => {
            warn!(%failure, consequence, "the key store is unavailable")
        }
        StoreError::Unusable(_) | StoreError::Replaced(_) => {
            error!(%failure, consequence, "the key store is unusable")
        }
    }
}

#[cfg(test)]
mod tests;
