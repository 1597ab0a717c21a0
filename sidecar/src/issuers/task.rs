//! The task of one issuer. It owns all that belongs to it, and publishes the keys that requests
//! read: fetched at the start, at every tick of the schedule (contract §1, §8: second 0 of every
//! minute), and early when a token names an unknown key.
//!
//! A failure is logged and retried at the next tick; the last good key stays (contract §7). While
//! no key is usable, the fetch is retried before the tick as well (docs/adr/0025).

mod retries;
pub(crate) mod schedule;

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Instant, SystemTime};

use postern_process::clock;
use postern_process::exit::ExitError;
use postern_token::keys::KeySet;
use postern_token::times::moment;
use tokio::sync::mpsc;
use tokio::time::sleep_until;
use tokio_cron_scheduler::JobSchedulerError;

use self::retries::Backoff;
use self::schedule::{Schedule, Tick};
use super::IssuerSettings;
use super::cache::KeyCache;
use super::current::{CurrentKeys, FailedFetch};
use super::fingerprint::KeySetFingerprint;
use super::revocations::fetched_list::FetchedList;
use super::revocations::refresh::RevocationRefresh;
use super::source::fetch::FetchError;
use super::source::{KeySource, SourceSettings};
use crate::telemetry::metrics::{Metrics, RefreshResult};
use postern_transport::issuer::Purpose;

/// The senders of reloaded settings, in the order of the issuers.
pub(crate) type Changes = Vec<mpsc::UnboundedSender<IssuerSettings>>;

/// Keeps the keys of one issuer fresh.
#[derive(Debug)]
pub(crate) struct IssuerTask {
    source: KeySource,
    schedule: Schedule,
    keys: Arc<CurrentKeys>,
    cache: Option<KeyCache>,
    revocations: Option<RevocationRefresh>,
    backoff: Backoff,
    /// Keys of the last set that are not used, each with the reason.
    skipped: Vec<String>,
    /// The warning of the last fetch.
    warning: Option<String>,
    changes: mpsc::UnboundedReceiver<IssuerSettings>,
    metrics: Metrics,
}

impl IssuerTask {
    /// Opens the source, and trusts the keys and the list of a former process until the first fetch.
    /// Returns the sender of changed settings too.
    ///
    /// # Errors
    /// The errors of [`IssuerSettings::open`].
    pub(crate) fn new(
        settings: IssuerSettings,
        keys: Arc<CurrentKeys>,
        schedule: Schedule,
        metrics: Metrics,
    ) -> Result<(Self, mpsc::UnboundedSender<IssuerSettings>), ExitError> {
        let (source, warning) = settings.open()?;
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        metrics.expect_key_refreshes(keys.name.as_deref());
        let cache = match settings.key_cache {
            Some(cache) => {
                let failing = Arc::clone(&keys.cache_fails);
                Some(KeyCache::new(cache, metrics.clone(), failing))
            }
            None => None,
        };
        let revocations = if settings.source.wants_list() {
            Some(RevocationRefresh::new(Arc::clone(&keys), metrics.clone()))
        } else {
            None
        };
        let (sender, changes) = mpsc::unbounded_channel();
        let mut task = Self {
            source,
            schedule,
            keys,
            cache,
            revocations,
            backoff: Backoff::default(),
            skipped: Vec::new(),
            warning: None,
            changes,
            metrics,
        };
        // Before the first fetch, which may take as long as the key server is away.
        task.load_cache(clock::now());
        Ok((task, sender))
    }

    /// Trusts keys and list of a former process, because the key server may be unreachable.
    fn load_cache(&mut self, now: SystemTime) {
        let Some(cache) = &self.cache else {
            return;
        };
        let Some(found) = cache.load(now) else {
            return;
        };
        let key_ids = KeySetFingerprint::new(&found.keys);
        let now = clock::instant();
        self.keys.install(found.keys, found.fetched);
        let state = self.keys.load();
        let age_seconds = state.as_ref().map(|state| state.age(now).as_secs());
        let issuer = self.keys.name.as_deref();
        if self.keys.usable(state.as_deref(), now).is_ok() {
            tracing::info!(issuer, %key_ids, age_seconds, "verification key loaded from the key cache");
        } else {
            tracing::warn!(issuer, %key_ids, age_seconds, "the key in the key cache is too old to be trusted");
        }
        // The list after the keys, which verify it.
        if let (Some(revocations), Some(list)) = (&self.revocations, &found.revocations) {
            revocations.on_cached(list);
        }
    }

    /// Fetches now, then on schedule, until the runtime ends.
    ///
    /// # Errors
    /// [`JobSchedulerError`] when the schedule cannot be started.
    pub(crate) async fn run(mut self) -> Result<Infallible, JobSchedulerError> {
        let mut ticks = self.schedule.start().await?;
        loop {
            self.fetch(Purpose::Tick).await;
            if self.until_tick(ticks.next()).await == Tick::Overdue {
                ticks.begin_again().await;
            }
        }
    }

    /// Waits for the next tick, and does all that is due before it.
    pub(crate) async fn until_tick(&mut self, tick: impl Future<Output = Tick>) -> Tick {
        // Pinned outside of the loop: a wait that is begun anew would miss a tick during a fetch below.
        let mut tick = pin!(tick);
        loop {
            let retry = self.backoff.retry();
            tokio::select! {
                // Settings first, for the fetches below; then requests that wait; then the tick.
                biased;
                Some(settings) = self.changes.recv() => self.apply(settings).await,
                () = self.keys.on_demand().requested() => {
                    let succeeded = self.fetch(Purpose::UnknownKey).await;
                    // Ended once the keys are installed, by which the waiting requests are decided now.
                    self.keys.on_demand().ended(succeeded);
                }
                tick = &mut tick => return tick,
                // Only while no key is usable; else `retry` is `None`, and the tick comes first.
                () = wait_until(retry) => {
                    self.fetch(Purpose::Tick).await;
                }
            }
        }
    }

    /// Takes changed credentials, and the origin of the cache. A file of keys is read at once: the operator
    /// who changed it waits for the result in the log.
    async fn apply(&mut self, settings: IssuerSettings) {
        if let (Some(cache), Some(settings)) = (&mut self.cache, settings.key_cache) {
            cache.set_origin(settings.origin);
        }
        if let SourceSettings::AuthServer(settings) = settings.source {
            self.source.set_credentials(settings.application);
        }
        if self.source.is_file() {
            self.fetch(Purpose::Tick).await;
        }
    }

    /// Fetches once. Returns false after a failure, which leaves the keys as they are.
    pub(crate) async fn fetch(&mut self, purpose: Purpose) -> bool {
        let fetched =
            unless_it_panics(self.source.fetch(purpose, self.list_cursor().as_deref())).await;
        self.on_clock();
        match fetched.unwrap_or(Err(FetchError::Panicked)) {
            Ok(fetched) => {
                self.backoff = Backoff::default();
                self.on_warning(fetched.warning);
                match fetched.keys {
                    Some(keys) => self.on_keys(keys),
                    None => self.count(RefreshResult::Unchanged),
                }
                self.on_success();
                // After the keys: a list may be signed by one that came with it.
                self.on_list(fetched.list);
                true
            }
            Err(error) => {
                self.on_failure(&error);
                // The revocation list needs no application: a rejected application must not keep it away.
                self.fetch_revocations().await;
                false
            }
        }
    }

    /// Notes a success, and logs the end of an outage.
    fn on_success(&self) {
        let Some(failed) = self.keys.failed() else {
            return;
        };
        self.keys.set_failed(None);
        tracing::info!(
            issuer = self.keys.name,
            source = self.source.last_endpoint(),
            failed_since = moment(failed.since),
            "verification keys are fetched again"
        );
    }

    /// Logs a server's clock that is off, once a change.
    fn on_clock(&self) {
        let Some(ahead) = self.source.clock_ahead() else {
            return;
        };
        let source = self.source.last_endpoint();
        match self.keys.clock.seen(ahead) {
            Some(true) => {
                tracing::warn!(source, ahead, "the server's clock is off: set the clocks")
            }
            Some(false) => tracing::info!(source, "the server's clock is right again"),
            None => {}
        }
    }

    /// Logs a warning once a change.
    fn on_warning(&mut self, warning: Option<String>) {
        if self.warning != warning
            && let Some(warning) = &warning
        {
            tracing::warn!(issuer = self.keys.name, "{warning}");
        }
        self.warning = warning;
    }

    /// Fetches the revocation list alone.
    async fn fetch_revocations(&mut self) {
        match unless_it_panics(self.source.fetch_list(self.list_cursor().as_deref())).await {
            Some(list) => self.on_list(list),
            None => tracing::error!("the fetch of the revocation list panicked"),
        }
    }

    /// Returns the name of the lines that the next list need not bring.
    fn list_cursor(&self) -> Option<String> {
        self.revocations.as_ref()?.cursor()
    }

    /// Puts the fetched list in force, and keeps it with the keys for the next process.
    fn on_list(&mut self, fetched: FetchedList) {
        if let Some(revocations) = &mut self.revocations {
            revocations.on_fetch(fetched, &self.source.last_endpoint());
        }
        if let (Some(cache), Some(state)) = (&self.cache, self.keys.load().as_deref()) {
            let in_force = self.keys.list.load();
            let list = match self.revocations {
                Some(_) => in_force.as_deref(),
                // A list that another task has fetched is in that task's file.
                None => None,
            };
            cache.keep(state, list, clock::now());
        }
    }

    fn on_keys(&mut self, keys: KeySet) {
        if self.skipped != keys.skipped() {
            self.skipped = keys.skipped().to_vec();
            for key in &self.skipped {
                tracing::info!(
                    issuer = self.keys.name,
                    key,
                    "a key of the issuer's set cannot be used"
                );
            }
        }
        self.keys.on_demand().fetched(clock::instant());
        let key_ids = KeySetFingerprint::new(&keys);
        // The former keys are loaded before the new ones are installed: the log line depends on both.
        let former = self.keys.load();
        let result = self.keys.install(keys, clock::instant());
        let issuer = self.keys.name.as_deref();
        match (result, former.as_ref()) {
            (RefreshResult::Replaced, None) => {
                tracing::info!(issuer, %key_ids, "verification key fetched");
            }
            (RefreshResult::Replaced, Some(_)) => {
                tracing::info!(issuer, %key_ids, "verification key replaced");
            }
            (_, Some(former)) if former.is_cached() => {
                tracing::info!(issuer, %key_ids, "verification key fetched: equal to the cached one");
            }
            _ => {}
        }
        self.count(result);
    }

    fn count(&self, result: RefreshResult) {
        self.metrics
            .key_refreshed(result, self.keys.name.as_deref());
    }

    /// Records a failed fetch, with one log line for each attempt, however long the outage lasts.
    fn on_failure(&mut self, error: &FetchError) {
        self.count(RefreshResult::Failed);
        let (source, issuer) = (self.source.last_endpoint(), self.keys.name.as_deref());
        let (state, now) = (self.keys.load(), clock::instant());
        let is_usable = self.keys.usable(state.as_deref(), now).is_ok();
        let wait = self
            .backoff
            .failed(now, self.schedule.until_next(), !is_usable);
        let (since, began) = match self.keys.failed() {
            Some(failed) => (failed.since, failed.began),
            None => (clock::unix_now(), now),
        };
        self.keys.set_failed(Some(FailedFetch {
            reason: if self.source.is_file() {
                // The error names the file.
                error.to_string()
            } else {
                format!("{source}: {error}")
            },
            since,
            began,
            next: now + wait,
        }));
        match state.as_ref() {
            Some(state) => tracing::warn!(
                issuer,
                source,
                %error,
                key_ids = %state.names(),
                age_seconds = state.age(now).as_secs(),
                "verification key not fetched; keeping the last good one"
            ),
            None => {
                let seconds = wait.as_secs_f32().ceil();
                tracing::error!(
                    issuer,
                    source,
                    %error,
                    "verification key not fetched; next try in {seconds} s"
                );
            }
        }
    }
}

/// Completes `work`; `None` after a panic, which must not end the task and its last good key.
async fn unless_it_panics<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        // After a panic the future is only dropped, so no broken state of its own is used.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Some),
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
