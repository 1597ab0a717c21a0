//! Keeps the revocation list fresh: each fetch of the keys brings one.
//!
//! A failure leaves the last list in force, and the keys as they are.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use contract::token::revocations::RevocationList;
use http::HeaderValue;
use parking_lot::Mutex;
use runtime::clock::unix_now;
use runtime::health::Condition;
use runtime::owner_only_file;

use super::current::{CurrentKeys, FetchTime};
use super::revocations::{FetchedList, ListError, Revocations, Taken, take, verified};
use crate::telemetry::metrics::{ListResult, Metrics};

/// Larger than any list.
const MAX_FILE_BYTES: u64 = 2 * 1024 * 1024;
const STALE: &str = "older than --max-revocation-age";

/// The readers and the copy of the list.
#[derive(Debug)]
pub(crate) struct RevocationRefresh {
    keys: Arc<CurrentKeys>,
    metrics: Metrics,
    /// Not ready while a required list is stale; `None` where none is required.
    ready: Option<Condition>,
    /// The interval of fetches beside those of the keys.
    poll: Option<Duration>,
    /// Logged already: an outage is one line.
    is_failing: AtomicBool,
    /// The last list, beside the key cache, and its content.
    cache: Option<(PathBuf, Arc<Mutex<String>>)>,
}

impl RevocationRefresh {
    pub(crate) fn new(keys: Arc<CurrentKeys>, metrics: Metrics, ready: Option<Condition>) -> Self {
        Self {
            keys,
            metrics,
            ready,
            poll: None,
            is_failing: AtomicBool::new(false),
            cache: None,
        }
    }

    /// Sets the interval of fetches beside those of the keys.
    #[must_use]
    pub(crate) fn polling(self, poll: Option<Duration>) -> Self {
        Self { poll, ..self }
    }

    /// Waits until the next fetch beside those of the keys; forever without them.
    pub(crate) async fn next_poll(&self) {
        match self.poll {
            Some(poll) => tokio::time::sleep(poll).await,
            None => std::future::pending().await,
        }
    }

    /// Puts the list of a former process in force, and keeps later ones in `file`.
    #[must_use]
    pub(crate) fn with_cache(self, file: Option<PathBuf>) -> Self {
        let Some(file) = file else {
            return self;
        };
        let jws = match owner_only_file::read(&file, MAX_FILE_BYTES) {
            Ok(jws) => jws.map(|jws| jws.trim().to_owned()),
            Err(error) => {
                let file = owner_only_file::describe(&file);
                tracing::warn!(file, %error, "the cached revocation list is not used");
                None
            }
        };
        if let Some(jws) = &jws {
            self.on_cache_hit(jws);
        }
        let cache = Some((file, Arc::new(Mutex::new(jws.unwrap_or_default()))));
        Self { cache, ..self }
    }

    fn on_cache_hit(&self, jws: &str) {
        let state = self.keys.load();
        let Some(state) = state.as_deref() else {
            return;
        };
        match RevocationList::verify(state.keys(), jws) {
            Ok(list) => {
                let age = unix_now().saturating_sub(list.issued_at());
                let age = Duration::from_secs(u64::try_from(age).unwrap_or_default());
                let (seq, entries) = (list.seq(), list.entries());
                let fetched = FetchTime::before(Instant::now(), age);
                self.keys
                    .install_revocations(Revocations::new(list, fetched), true);
                tracing::info!(seq, entries, "revocation list loaded from its cache");
            }
            Err(error) => tracing::warn!(%error, "the cached revocation list is not used"),
        }
    }

    /// Puts a fetched list in force. Returns the version that the next fetch names, if the list was
    /// accepted.
    pub(crate) fn on_fetch(&self, fetched: FetchedList, server: &str) -> Option<HeaderValue> {
        let outcome = match fetched {
            FetchedList::NotWanted => return None,
            FetchedList::NotModified => {
                self.on_unchanged();
                Ok((ListResult::Unchanged, None))
            }
            FetchedList::List { jws, version } => self.on_list(&jws).map(|it| (it, version)),
            FetchedList::Absent if self.ready.is_none() => {
                tracing::debug!(server, "the auth server publishes no revocation list");
                return None;
            }
            FetchedList::Absent => Err(ListError::Absent),
            FetchedList::Failed(error) => Err(error),
        };
        let (result, version) = match outcome {
            Ok(fetched) => {
                self.is_failing.store(false, Ordering::Relaxed);
                fetched
            }
            Err(error) => {
                if !self.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(server, %error, "revocation list not fetched; keeping the last good one");
                }
                (ListResult::Failed, None)
            }
        };
        self.metrics.revocations_refreshed(result);
        self.check_age();
        version
    }

    fn on_list(&self, jws: &str) -> Result<ListResult, ListError> {
        let state = self.keys.load();
        let Some(state) = state.as_deref() else {
            return Ok(ListResult::Failed);
        };
        let list = verified(state.keys(), jws, unix_now())?;
        let known = state.revocations().map(Revocations::list);
        let seq = list.seq();
        match take(known, state.keys(), list) {
            Taken::Older => {
                let known = known.map(|known| known.seq());
                tracing::debug!(seq, known, "an older revocation list is ignored");
                return Ok(ListResult::Older);
            }
            Taken::Unchanged => {
                self.on_unchanged();
                self.keep(jws);
                return Ok(ListResult::Unchanged);
            }
            Taken::Replaced(list) => {
                let entries = list.entries();
                tracing::info!(seq, entries, "revocation list fetched");
                self.keys
                    .install_revocations(Revocations::new(list, Instant::now()), true);
            }
        }
        self.keep(jws);
        Ok(ListResult::Replaced)
    }

    /// The list in force was confirmed.
    fn on_unchanged(&self) {
        let state = self.keys.load();
        if let Some(known) = state.as_ref().and_then(|state| state.revocations()) {
            let confirmed = known.confirmed(Instant::now());
            self.keys.install_revocations(confirmed, false);
        }
    }

    /// Reports a stale list to the probes.
    pub(crate) fn check_age(&self) {
        let Some(ready) = &self.ready else {
            return;
        };
        let state = self.keys.load();
        match state.as_deref() {
            Some(state) if self.keys.has_fresh_revocations(state, Instant::now()) => {
                ready.set_ready();
            }
            Some(state) if state.revocations().is_some() => ready.set_not_ready(STALE),
            _ => ready.set_not_ready("not fetched yet"),
        }
    }

    /// Writes the list in the background, if it is not there already.
    fn keep(&self, jws: &str) {
        let Some((file, kept)) = self.cache.clone() else {
            return;
        };
        let jws = jws.to_owned();
        tokio::task::spawn_blocking(move || {
            let mut kept = kept.lock();
            if *kept == jws {
                return;
            }
            match owner_only_file::replace(&file, &jws) {
                Ok(()) => *kept = jws,
                Err(error) => {
                    let file = owner_only_file::describe(&file);
                    tracing::warn!(file, %error, "the revocation list cannot be cached");
                }
            }
        });
    }
}
