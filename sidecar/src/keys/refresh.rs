//! When the keys are fetched: once at the start, then at every tick of the schedule (contract §1, §8:
//! second 0 of every minute), and early when a token names a key that is not known.
//!
//! A failure is logged and tried again at the next tick; the last good key stays (contract §7). While no key can be
//! used, the fetch is tried again before the tick as well (docs/adr/0025).

use std::convert::Infallible;
use std::sync::{Arc, Mutex as BriefMutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use contract::keys::KeySet;
use contract::rejection::Rejection;
use process::health::Condition;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};
use tokio_cron_scheduler::JobSchedulerError;

use super::cache::{KeyCache, KeyCacheSettings};
use super::contract_endpoint::Application;
use super::current::{Change, CurrentKeys, FetchTime, Names};
use super::previous::PreviousKeys;
use super::schedule::{Schedule, Ticks};
use super::source::{FetchError, Fetched, KeySource, Purpose};
use crate::metrics::{Metrics, RefreshResult};

/// What readiness says then.
const TOO_OLD: &str = "too old: --max-key-age is over";

/// When keys are fetched, and for how long former ones count.
#[derive(Debug, Clone)]
pub(crate) struct Timing {
    pub(crate) schedule: Schedule,
    /// Whether a failed fetch is tried again before the tick while no key can be used.
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
            self.ready.met();
            tracing::info!(%key_ids, age_seconds, "verification key taken from the key cache");
        } else {
            self.ready.unmet(TOO_OLD);
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
                self.wait(&mut ticks).await;
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

    /// Waits for the next tick, or for the retry before it.
    async fn wait(&self, ticks: &mut Ticks) {
        let retry = async {
            match self.keys.attempts().retry() {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ticks.next() => {}
            () = retry => self.keys.attempts().retried(),
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

    fn previous(&self) -> std::sync::MutexGuard<'_, PreviousKeys> {
        self.previous.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.ready.met();
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
            self.ready.unmet(TOO_OLD);
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
                self.ready.unmet(format!("{source}: {error}"));
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
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use contract::signing_type::SigningType;
    use process::health::Health;
    use zeroize::Zeroizing;

    use super::super::contract_endpoint::EndpointSettings;
    use super::super::source::SourceSettings;
    use super::super::tls::TlsFiles;
    use super::*;

    const YEARLY: &str = "0 0 0 1 1 *";

    /// An auth server that answers the n-th fetch with the n-th of these envelopes.
    fn refresher(envelopes: Vec<String>) -> (Arc<Refresher>, Arc<CurrentKeys>, Health) {
        refresher_with(YEARLY, Duration::ZERO, envelopes)
    }

    fn refresher_with(
        cron: &str,
        grace: Duration,
        envelopes: Vec<String>,
    ) -> (Arc<Refresher>, Arc<CurrentKeys>, Health) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let auth_server = format!("http://{}/auth", listener.local_addr().unwrap());
        thread::spawn(move || {
            for envelope in envelopes {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4096]).unwrap();
                let length = envelope.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                let _ = stream.write_all((head + &envelope).as_bytes());
            }
        });
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let application = Application {
            id: "id".to_owned(),
            secret: Zeroizing::new("secret".to_owned()),
        };
        let source = SourceSettings::AuthServer(EndpointSettings {
            auth_server: auth_server.parse().unwrap(),
            tls: TlsFiles::default(),
            application,
            signing_type: SigningType::Hmac,
        });
        let source = KeySource::new(source).unwrap();
        let keys = Arc::new(CurrentKeys::default());
        let health = Health::new();
        health.set_started();
        let ready = health.condition("verification_key", "not fetched yet");
        let metrics = Metrics::new(Arc::clone(&keys)).0;
        let timing = Timing {
            schedule: Schedule::new(cron).unwrap(),
            retry_without_key: true,
            previous_key_grace: grace,
        };
        let refresher = Refresher::new(source, timing, Arc::clone(&keys), metrics, ready);
        (Arc::new(refresher), keys, health)
    }

    fn envelope(success: bool, letter: &str) -> String {
        let key = letter.repeat(32);
        format!(r#"{{"success":{success},"status":200,"msg":"","data":"{key}"}}"#)
    }

    fn generation(keys: &CurrentKeys) -> Option<u64> {
        keys.load().as_ref().map(|state| state.generation())
    }

    #[tokio::test]
    async fn contract_7_a_failed_fetch_never_replaces_a_key() {
        let (refresher, keys, health) = refresher(vec![
            envelope(false, "a"),
            envelope(true, "a"),
            envelope(false, "b"),
            envelope(true, "a"),
            envelope(true, "b"),
        ]);
        for (expected, ready) in [
            (None, false),
            (Some(1), true),
            (Some(1), true),
            (Some(1), true),
            (Some(2), true),
            // Nobody answers any more.
            (Some(2), true),
        ] {
            refresher.refresh().await;
            assert_eq!(generation(&keys), expected);
            assert_eq!(health.is_ready(), ready);
        }
    }

    #[test]
    fn a_fetch_that_panics_has_failed_and_the_next_one_may_succeed() {
        let (refresher, keys, health) = refresher(vec![envelope(true, "a")]);
        // The library panics where a connection is to be made on a runtime without one.
        let deaf = tokio::runtime::Builder::new_current_thread().build();
        deaf.unwrap().block_on(refresher.refresh());
        let conditions = serde_json::to_string(&health.conditions()).unwrap();
        assert!(conditions.contains("panicked"), "{conditions}");
        let sound = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        sound.unwrap().block_on(refresher.refresh());
        assert_eq!(generation(&keys), Some(1));
    }

    #[tokio::test]
    async fn there_is_one_fetch_at_a_time() {
        let (refresher, keys, _) = refresher(vec![envelope(true, "a")]);
        let under_way = refresher.source.lock().await;
        refresher.refresh().await;
        assert_eq!(generation(&keys), None, "left out");
        drop(under_way);
        refresher.refresh().await;
        assert_eq!(generation(&keys), Some(1));
    }

    async fn until(keys: &CurrentKeys, expected: u64) {
        let reached = async {
            while generation(keys) != Some(expected) {
                tokio::task::yield_now().await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(30), reached);
        in_time.await.unwrap();
    }

    #[tokio::test]
    async fn the_first_fetch_does_not_wait_for_the_schedule() {
        let (refresher, keys, _) = refresher(vec![envelope(true, "a")]);
        let run = tokio::spawn(refresher.run());
        until(&keys, 1).await;
        run.abort();
    }

    #[tokio::test]
    async fn without_a_key_a_failed_fetch_is_tried_again_before_the_tick() {
        let envelopes = vec![
            envelope(false, "a"),
            envelope(false, "a"),
            envelope(true, "a"),
        ];
        let (refresher, keys, _) = refresher(envelopes);
        let run = tokio::spawn(refresher.run());
        until(&keys, 1).await;
        assert_eq!(keys.attempts().retry(), None, "from now on the tick alone");
        run.abort();
    }

    #[tokio::test]
    async fn the_schedule_fetches_again() {
        let envelopes = vec![envelope(true, "a"), envelope(true, "b")];
        let (refresher, keys, _) = refresher_with("* * * * * *", Duration::ZERO, envelopes);
        let run = tokio::spawn(refresher.run());
        until(&keys, 2).await;
        run.abort();
    }

    #[tokio::test]
    async fn a_request_that_asks_does_not_wait_for_the_schedule() {
        let (refresher, keys, _) = refresher(vec![envelope(true, "a"), envelope(true, "b")]);
        let run = tokio::spawn(refresher.run());
        until(&keys, 1).await;
        keys.early_fetch().wait(Instant::now()).await;
        assert_eq!(generation(&keys), Some(2));
        run.abort();
    }

    fn trusted(keys: &CurrentKeys) -> usize {
        let state = keys.load();
        state.as_ref().map_or(0, |state| state.keys().keys().len())
    }

    #[tokio::test]
    async fn a_former_key_ends_by_itself_while_nobody_answers() {
        let grace = Duration::from_millis(50);
        let envelopes = vec![envelope(true, "a"), envelope(true, "b")];
        let (refresher, keys, _) = refresher_with(YEARLY, grace, envelopes);
        refresher.refresh().await;
        refresher.refresh().await;
        assert_eq!((trusted(&keys), generation(&keys)), (2, Some(2)));
        let fetched = keys.load().as_ref().unwrap().age(Instant::now());
        refresher.end_previous_keys().await;
        assert_eq!((trusted(&keys), generation(&keys)), (1, Some(3)));
        let age = keys.load().as_ref().unwrap().age(Instant::now());
        assert!(age > fetched, "the end is no fetch");
        let waits = tokio::time::timeout(grace, refresher.end_previous_keys());
        assert!(waits.await.is_ok(), "told of the fetches");
        let waits = tokio::time::timeout(grace, refresher.end_previous_keys());
        assert!(waits.await.is_err(), "nothing is left to end");
    }
}
