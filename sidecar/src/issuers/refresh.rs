//! Fetches the keys: at the start, at every tick of the schedule (contract §1, §8: second 0 of
//! every minute), and early when a token names an unknown key.
//!
//! A failure is logged and retried at the next tick; the last good key stays (contract §7). While
//! no key is usable, the fetch is retried before the tick as well (docs/adr/0025).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_cron_scheduler::JobSchedulerError;
use wire::keys::KeySet;
use wire::rejection::Rejection;

use super::cache::{KeyCache, KeyCacheSettings};
use super::current::{CurrentKeys, FetchTime, InstallOutcome, KeySetFingerprint};
use super::fetch::{FetchError, Fetched, Purpose};
use super::issuer_keys::NamedKeys;
use super::readiness::KeyReadiness;
use super::revocation_refresh::RevocationRefresh;
use super::schedule::{Schedule, Tick, Ticks};
use super::source::KeySource;
use super::source::auth_server::Application;
use crate::telemetry::metrics::{Metrics, RefreshResult};

/// The readiness text for keys past their age.
const TOO_OLD: &str = "older than --max-key-age";

/// Keeps [`CurrentKeys`] fresh.
#[derive(Debug)]
pub(crate) struct Refresher {
    /// Locked for the duration of a fetch: there is one at a time.
    source: Arc<Mutex<KeySource>>,
    schedule: Schedule,
    keys: Arc<CurrentKeys>,
    cache: Option<KeyCache>,
    revocations: Option<RevocationRefresh>,
    metrics: Metrics,
    /// Ready with a usable key.
    ready: KeyReadiness,
    /// The issuer's name in logs and metrics; `None` for the only issuer.
    issuer: Option<String>,
}

impl Refresher {
    pub(crate) fn new(
        source: KeySource,
        schedule: Schedule,
        of: &NamedKeys,
        metrics: Metrics,
        ready: KeyReadiness,
    ) -> Self {
        Self {
            source: Arc::new(Mutex::new(source)),
            schedule,
            keys: Arc::clone(&of.keys),
            cache: None,
            revocations: None,
            metrics,
            ready,
            issuer: of.name.clone(),
        }
    }

    /// Adds the key cache. Its keys are trusted until the first fetch, because the key server may
    /// be unreachable.
    #[must_use]
    pub(crate) fn with_cache(self, cache: Option<KeyCache>, now: SystemTime) -> Self {
        if let Some((keys, fetched)) = cache.as_ref().and_then(|cache| cache.load(now)) {
            self.on_cache_hit(keys, fetched);
        }
        Self { cache, ..self }
    }

    /// Puts the revocation list of each fetch in force.
    #[must_use]
    pub(crate) fn with_revocations(self, revocations: Option<RevocationRefresh>) -> Self {
        Self {
            revocations,
            ..self
        }
    }

    /// Sets the credentials of the next fetch. Waits for a fetch in progress.
    pub(crate) async fn set_credentials(&self, application: Application) {
        self.source.lock().await.set_credentials(application);
    }

    /// Reads a key file without waiting for the tick.
    pub(crate) async fn reread_file(self: &Arc<Self>) {
        let source = Arc::clone(&self.source).lock_owned().await;
        if matches!(*source, KeySource::File(_)) {
            self.fetch_from(source, Purpose::Tick).await;
        }
    }

    /// Sets the cache scope of later fetches.
    pub(crate) fn set_cache_scope(&self, settings: &KeyCacheSettings) {
        if let Some(cache) = &self.cache {
            cache.set_scope(settings.origin.clone());
        }
    }

    /// Trusts keys of a former process.
    fn on_cache_hit(&self, keys: KeySet, fetched: FetchTime) {
        let key_ids = KeySetFingerprint::of(&keys);
        let now = Instant::now();
        self.keys.install(keys, fetched);
        let state = self.keys.load();
        let age_seconds = state.as_ref().map(|state| state.age(now).as_secs());
        if self.keys.usable(state.as_deref(), now).is_ok() {
            self.ready.set_ready();
            let issuer = self.issuer.as_deref();
            tracing::info!(issuer, %key_ids, age_seconds, "verification key loaded from the key cache");
        } else {
            self.ready.set_not_ready(TOO_OLD);
            let issuer = self.issuer.as_deref();
            tracing::warn!(issuer, %key_ids, age_seconds, "the key in the key cache is too old to be trusted");
        }
    }

    /// Fetches now, then on schedule, until the runtime ends.
    ///
    /// # Errors
    /// [`JobSchedulerError`] when the schedule cannot be started.
    pub(crate) async fn run(self: Arc<Self>) -> Result<Infallible, JobSchedulerError> {
        let mut ticks = self.schedule.start().await?;
        let ticks = async {
            loop {
                self.refresh().await;
                if self.wait(&ticks).await == Some(Tick::Overdue) {
                    ticks.begin_again().await;
                }
            }
        };
        let on_demand = async {
            loop {
                self.refresh_on_demand().await;
            }
        };
        let lists = async {
            loop {
                self.refresh_revocations().await;
            }
        };
        Ok(tokio::select! {
            never = lists => never,
            never = ticks => never,
            never = on_demand => never,
        })
    }

    /// Waits for the next tick, or for the retry before it, which another fetch may set or clear
    /// meanwhile. Returns `None` for a retry.
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

    /// Fetches at a tick, which is skipped during another fetch.
    async fn refresh(self: &Arc<Self>) {
        let Ok(source) = Arc::clone(&self.source).try_lock_owned() else {
            tracing::debug!("the previous fetch of the verification key is still running");
            return;
        };
        self.fetch_from(source, Purpose::Tick).await;
    }

    /// Waits until a request needs newer keys, and fetches them, after a tick in progress: that one
    /// may have read the older keys.
    async fn refresh_on_demand(self: &Arc<Self>) {
        let on_demand_fetch = self.keys.on_demand_fetch();
        on_demand_fetch.requested().await;
        let source = Arc::clone(&self.source).lock_owned().await;
        self.fetch_from(source, Purpose::UnknownKey).await;
        on_demand_fetch.ended();
    }

    /// Waits for the next fetch of the revocation list alone, and makes it. A fetch of the keys in
    /// progress brings one anyway.
    async fn refresh_revocations(self: &Arc<Self>) {
        match &self.revocations {
            Some(revocations) => revocations.next_poll().await,
            None => std::future::pending().await,
        }
        let Ok(mut source) = Arc::clone(&self.source).try_lock_owned() else {
            return;
        };
        let fetching = Arc::clone(self);
        let fetched = tokio::spawn(async move {
            source.fetch_revocations().await;
            fetching.on_revocations(&mut source);
        });
        if fetched.await.is_err() {
            tracing::error!("the fetch of the revocation list panicked");
        }
    }

    /// Fetches in a task of its own: a panic is a failed fetch, and ends neither the schedule nor
    /// the last good key.
    async fn fetch_from(self: &Arc<Self>, source: OwnedMutexGuard<KeySource>, purpose: Purpose) {
        let (endpoint, fetching) = (source.last_endpoint(), Arc::clone(self));
        let fetched = tokio::spawn(async move { fetching.fetch(source, purpose).await });
        if fetched.await.is_err() {
            self.on_failure(&endpoint, &FetchError::Panicked);
        }
    }

    async fn fetch(&self, mut source: OwnedMutexGuard<KeySource>, purpose: Purpose) {
        match source.fetch(purpose).await {
            Ok(Fetched::Keys(keys)) => {
                self.on_success(keys);
                self.on_revocations(&mut source);
            }
            Ok(Fetched::StillFresh) => {
                self.keys.attempts().succeeded();
                self.count(RefreshResult::Unchanged);
            }
            Err(error) => {
                self.on_failure(&source.last_endpoint(), &error);
                if let Some(revocations) = &self.revocations {
                    revocations.check_age();
                }
            }
        }
    }

    fn on_revocations(&self, source: &mut KeySource) {
        let Some(revocations) = &self.revocations else {
            return;
        };
        let fetched = source.take_revocations();
        if let Some(version) = revocations.on_fetch(fetched, &source.last_endpoint()) {
            source.accept_revocations(version);
        }
    }

    fn on_success(&self, keys: KeySet) {
        if let Some(cache) = &self.cache {
            cache.keep(keys.clone());
        }
        let was_cached = self
            .keys
            .load()
            .as_ref()
            .is_some_and(|state| state.is_cached());
        let key_ids = KeySetFingerprint::of(&keys);
        let change = self.keys.install(keys, Instant::now());
        self.keys.attempts().succeeded();
        self.ready.set_ready();
        let issuer = self.issuer.as_deref();
        let result = match change {
            InstallOutcome::First => {
                tracing::info!(issuer, %key_ids, "verification key fetched");
                RefreshResult::Replaced
            }
            InstallOutcome::Replaced => {
                tracing::info!(issuer, %key_ids, "verification key replaced");
                RefreshResult::Replaced
            }
            InstallOutcome::Unchanged => {
                if was_cached {
                    tracing::info!(issuer, %key_ids, "verification key fetched: equal to the cached one");
                }
                RefreshResult::Unchanged
            }
        };
        self.count(result);
    }

    fn count(&self, result: RefreshResult) {
        self.metrics.key_refreshed(result, self.issuer.as_deref());
    }

    /// One line for each attempt, however long it lasts.
    fn on_failure(&self, source: &str, error: &FetchError) {
        self.count(RefreshResult::Failed);
        let issuer = self.issuer.as_deref();
        let (state, now) = (self.keys.load(), Instant::now());
        let unusable = self.keys.usable(state.as_deref(), now).err();
        let until_tick = self.schedule.until_next();
        let next = self
            .keys
            .attempts()
            .failed(now, until_tick, unusable.is_some());
        if unusable == Some(Rejection::AuthKeysStale) {
            self.ready.set_not_ready(TOO_OLD);
        }
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
                self.ready.set_not_ready(format!("{source}: {error}"));
                let seconds = next.as_secs_f32().ceil();
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

#[cfg(test)]
mod tests;
