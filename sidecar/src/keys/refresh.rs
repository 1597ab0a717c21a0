//! When the keys are fetched: once at the start, then at every tick of the schedule (contract §1, §8:
//! second 0 of every minute), and early when a token names a key that is not known.
//!
//! A failure is logged and tried again at the next tick; the last good key stays (contract §7). While no key can be
//! used, the fetch is tried again before the tick as well (docs/adr/0025).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use contract::keys::KeySet;
use contract::rejection::Rejection;
use parking_lot::Mutex as BriefMutex;
use runtime::health::Condition;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};
use tokio_cron_scheduler::JobSchedulerError;

use super::cache::{KeyCache, KeyCacheSettings};
use super::current::{Change, CurrentKeys, FetchTime, Names};
use super::fetch::{FetchError, Fetched, Purpose};
use super::grace::PreviousKeys;
use super::schedule::{Schedule, Tick, Ticks};
use super::source::KeySource;
use super::source::auth_server::Application;
use crate::telemetry::metrics::{Metrics, RefreshResult};

/// What readiness says then.
const TOO_OLD: &str = "too old: --max-key-age is over";

/// When keys are fetched, and for how long former ones count.
#[derive(Debug, Clone)]
pub(crate) struct Timing {
    pub(crate) schedule: Schedule,
    /// A failed fetch is tried again before the tick while no key can be used.
    pub(crate) retry_without_key: bool,
    pub(crate) previous_key_grace: Duration,
}

/// Keeps [`CurrentKeys`] fresh.
#[derive(Debug)]
pub(crate) struct Refresher {
    /// Locked for the duration of a fetch: there is one at a time.
    source: Arc<Mutex<KeySource>>,
    timing: Timing,
    /// Held while keys are installed: what was decided here is what is trusted.
    previous: BriefMutex<PreviousKeys>,
    /// A former key has an end that was not known before.
    end_is_known: Notify,
    keys: Arc<CurrentKeys>,
    cache: Option<KeyCache>,
    metrics: Metrics,
    /// Whether there is a key to verify with.
    ready: Condition,
}

impl Refresher {
    pub(crate) fn new(
        source: KeySource,
        timing: Timing,
        keys: Arc<CurrentKeys>,
        metrics: Metrics,
        ready: Condition,
    ) -> Self {
        Self {
            source: Arc::new(Mutex::new(source)),
            previous: BriefMutex::new(PreviousKeys::new(timing.previous_key_grace)),
            timing,
            end_is_known: Notify::new(),
            keys,
            cache: None,
            metrics,
            ready,
        }
    }

    /// Fetched keys are kept in `cache`. Those that it holds are trusted until the first fetch: nobody
    /// else may be there to say which ones to trust.
    #[must_use]
    pub(crate) fn with_cache(self, cache: Option<KeyCache>, now: SystemTime) -> Self {
        if let Some((keys, fetched)) = cache.as_ref().and_then(|cache| cache.load(now)) {
            self.found(keys, fetched);
        }
        Self { cache, ..self }
    }

    /// Shows itself as `application` from the next fetch on. Waits for one that is under way.
    pub(crate) async fn now_shows(&self, application: Application) {
        self.source.lock().await.now_shows(application);
    }

    /// Looks at the file of keys without waiting for the tick, where the keys come from a file.
    pub(crate) async fn reread_file(self: &Arc<Self>) {
        let source = Arc::clone(&self.source).lock_owned().await;
        if matches!(*source, KeySource::File(_)) {
            self.fetch_from(source, Purpose::Tick).await;
        }
    }

    /// What is fetched from now on is cached for tokens of this origin.
    pub(crate) fn now_caches(&self, settings: &KeyCacheSettings) {
        if let Some(cache) = &self.cache {
            cache.now_of(settings.origin.clone());
        }
    }

    /// Trusts keys of a former process.
    fn found(&self, keys: KeySet, fetched: FetchTime) {
        let key_ids = Names::of(&keys);
        let now = Instant::now();
        let keys = self.previous().joined(keys, now);
        self.keys.install_of(keys, fetched);
        let state = self.keys.load();
        let age_seconds = state.as_ref().map(|state| state.age(now).as_secs());
        if self.keys.usable(state.as_deref(), now).is_ok() {
            self.ready.set_ready();
            tracing::info!(%key_ids, age_seconds, "verification key taken from the key cache");
        } else {
            self.ready.set_not_ready(TOO_OLD);
            tracing::warn!(%key_ids, age_seconds, "the key in the key cache is too old to be trusted");
        }
    }

    /// Fetches now, then on schedule, until the runtime ends.
    ///
    /// # Errors
    /// [`JobSchedulerError`] when the schedule cannot be started.
    pub(crate) async fn run(self: Arc<Self>) -> Result<Infallible, JobSchedulerError> {
        let mut ticks = self.timing.schedule.start().await?;
        let ticks = async {
            loop {
                self.refresh().await;
                if self.wait(&ticks).await == Some(Tick::Overdue) {
                    ticks.begin_again().await;
                }
            }
        };
        let early = async {
            loop {
                self.refresh_early().await;
            }
        };
        let ends = async {
            loop {
                self.end_previous_keys().await;
            }
        };
        Ok(tokio::select! {
            never = ticks => never,
            never = early => never,
            never = ends => never,
        })
    }

    /// Waits for the next tick, or for the retry before it, which a fetch beside the schedule may set or
    /// clear meanwhile. Returns `None` for a retry.
    async fn wait(&self, ticks: &Ticks) -> Option<Tick> {
        let attempts = self.keys.attempts();
        let tick = ticks.next();
        tokio::pin!(tick);
        loop {
            let next_retry = attempts.retry();
            let retry = async {
                match next_retry {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                tick = &mut tick => return Some(tick),
                () = retry => {
                    attempts.retried(next_retry);
                    return None;
                }
                () = attempts.changed() => {}
            }
        }
    }

    /// One tick. It is left out while the former one is still at work.
    async fn refresh(self: &Arc<Self>) {
        let Ok(source) = Arc::clone(&self.source).try_lock_owned() else {
            tracing::debug!("the former fetch of the verification key is still under way");
            return;
        };
        self.fetch_from(source, Purpose::Tick).await;
    }

    /// Waits until a request needs newer keys, and fetches them. After a tick that is under way:
    /// it may have asked before there was anything new.
    async fn refresh_early(self: &Arc<Self>) {
        let early_fetch = self.keys.early_fetch();
        early_fetch.asked_for().await;
        let source = Arc::clone(&self.source).lock_owned().await;
        self.fetch_from(source, Purpose::UnknownKey).await;
        early_fetch.ended();
    }

    /// Waits until a former key has had its grace, and trusts it no more: also while nothing can be
    /// fetched.
    async fn end_previous_keys(&self) {
        let next_end = self.previous().next_end();
        match next_end {
            None => return self.end_is_known.notified().await,
            Some(end) => tokio::time::sleep_until(end.into()).await,
        }
        let mut previous = self.previous();
        if let Some((keys, fetched_at)) = previous.ended(Instant::now()) {
            let key_ids = Names::of(&keys);
            self.keys.install(keys, fetched_at);
            tracing::info!(%key_ids, "the former verification key has had its grace");
        }
    }

    fn previous(&self) -> parking_lot::MutexGuard<'_, PreviousKeys> {
        self.previous.lock()
    }

    /// A task of its own: one that panics is a fetch that failed, and neither the end of the schedule nor
    /// of the last good key.
    async fn fetch_from(self: &Arc<Self>, source: OwnedMutexGuard<KeySource>, purpose: Purpose) {
        let (asked, fetching) = (source.asked(), Arc::clone(self));
        let fetched = tokio::spawn(async move { fetching.fetch(source, purpose).await });
        if fetched.await.is_err() {
            self.failed(&asked, &FetchError::Panicked);
        }
    }

    async fn fetch(&self, mut source: OwnedMutexGuard<KeySource>, purpose: Purpose) {
        match source.fetch(purpose).await {
            Ok(Fetched::Keys(keys)) => self.fetched(keys),
            Ok(Fetched::StillFresh) => {
                self.keys.attempts().succeeded();
                self.metrics.key_refreshed(RefreshResult::Unchanged);
            }
            Err(error) => self.failed(&source.asked(), &error),
        }
    }

    fn fetched(&self, keys: KeySet) {
        let now = Instant::now();
        if let Some(cache) = &self.cache {
            cache.keep(keys.clone());
        }
        let was_cached = self
            .keys
            .load()
            .as_ref()
            .is_some_and(|state| state.is_cached());
        let mut previous = self.previous();
        let keys = previous.joined(keys, now);
        let key_ids = Names::of(&keys);
        let change = self.keys.install(keys, now);
        drop(previous);
        self.end_is_known.notify_one();
        self.keys.attempts().succeeded();
        self.ready.set_ready();
        let result = match change {
            Change::First => {
                tracing::info!(%key_ids, "verification key fetched");
                RefreshResult::Replaced
            }
            Change::Replaced => {
                tracing::info!(%key_ids, "verification key replaced");
                RefreshResult::Replaced
            }
            Change::Unchanged => {
                if was_cached {
                    tracing::info!(%key_ids, "verification key fetched: it is the one of the key cache");
                }
                RefreshResult::Unchanged
            }
        };
        self.metrics.key_refreshed(result);
    }

    /// One line for each attempt, however long it lasts.
    fn failed(&self, source: &str, error: &FetchError) {
        self.metrics.key_refreshed(RefreshResult::Failed);
        let (state, now) = (self.keys.load(), Instant::now());
        let unusable = self.keys.usable(state.as_deref(), now).err();
        let retries = self.timing.retry_without_key && unusable.is_some();
        let until_tick = self.timing.schedule.until_next();
        let next = self.keys.attempts().failed(now, until_tick, retries);
        if unusable == Some(Rejection::AuthKeysStale) {
            self.ready.set_not_ready(TOO_OLD);
        }
        match state.as_ref() {
            Some(state) => tracing::warn!(
                source,
                %error,
                key_ids = %state.names(),
                age_seconds = state.age(now).as_secs(),
                "verification key not fetched; the last good one stays"
            ),
            None => {
                self.ready.set_not_ready(format!("{source}: {error}"));
                let seconds = next.as_secs_f32().ceil();
                tracing::error!(
                    source,
                    %error,
                    "verification key not fetched; next try in {seconds} s"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
