//! Keeps the revocation list fresh: each fetch of the keys brings one.
//!
//! A failure leaves the last list in force, and the keys as they are.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use runtime::files::owner_only_file;
use runtime::process::clock::unix_now;
use wire::token::revocations::RevocationList;

use super::current::{CurrentKeys, FetchTime};
use super::revocations::{FetchedList, ListError, Revocations, Taken, take, verified};
use crate::telemetry::metrics::{ListResult, Metrics};

/// Max length of the copy in the file; no list is as long.
const MAX_FILE_BYTES: u64 = 2 * 1024 * 1024;

/// The readers and the copy of the list.
#[derive(Debug)]
pub(crate) struct RevocationRefresh {
    keys: Arc<CurrentKeys>,
    metrics: Metrics,
    /// True once an outage is logged: it is one line.
    is_failing: AtomicBool,
    /// True after a response that was no list, or not the end of the one in force.
    wants_whole: AtomicBool,
    /// The last list, beside the key cache, and its content.
    cache: Option<(PathBuf, Arc<Mutex<String>>)>,
}

impl RevocationRefresh {
    pub(crate) fn new(keys: Arc<CurrentKeys>, metrics: Metrics) -> Self {
        Self {
            keys,
            metrics,
            is_failing: AtomicBool::new(false),
            wants_whole: AtomicBool::new(false),
            cache: None,
        }
    }

    /// Puts the list of a former process in force, and keeps later ones in `file`.
    #[must_use]
    pub(crate) fn with_cache(self, file: Option<PathBuf>) -> Self {
        let Some(file) = file else {
            return self;
        };
        let list = match owner_only_file::read(&file, MAX_FILE_BYTES) {
            Ok(list) => list.map(|list| list.to_string()),
            Err(error) => {
                let file = owner_only_file::describe(&file);
                tracing::warn!(file, %error, "the cached revocation list is not used");
                None
            }
        };
        if let Some(list) = &list {
            self.on_cache_hit(list);
        }
        let cache = Some((file, Arc::new(Mutex::new(list.unwrap_or_default()))));
        Self { cache, ..self }
    }

    fn on_cache_hit(&self, cached: &str) {
        let state = self.keys.load();
        let Some(state) = state.as_deref() else {
            return;
        };
        match RevocationList::verify(state.keys(), cached, None) {
            Ok(list) => {
                let age = unix_now().saturating_sub(list.issued_at());
                let age = Duration::from_secs(u64::try_from(age).unwrap_or_default());
                let (seq, entries) = (list.seq(), list.count());
                let fetched = FetchTime::before(Instant::now(), age);
                self.keys
                    .install_revocations(Revocations::new(list, state.keys(), fetched), true);
                tracing::info!(seq, entries, "revocation list loaded from its cache");
            }
            Err(error) => tracing::warn!(%error, "the cached revocation list is not used"),
        }
    }

    /// Returns the name of the lines that the next fetch need not bring.
    pub(crate) fn cursor(&self) -> Option<String> {
        if self.wants_whole.load(Ordering::Relaxed) {
            return None;
        }
        let state = self.keys.load();
        Some(state.as_deref()?.revocations()?.list().cursor())
    }

    /// Puts a fetched list in force.
    pub(crate) fn on_fetch(&self, fetched: FetchedList, server: &str) {
        let outcome = match fetched {
            FetchedList::NotRequested => return,
            FetchedList::List(response) => self.on_list(&response),
            FetchedList::Absent if !self.keys.requires_revocations() => {
                tracing::debug!(server, "the auth server publishes no revocation list");
                return;
            }
            FetchedList::Absent => Err(ListError::Absent),
            FetchedList::Failed(error) => Err(error),
        };
        let is_no_list = matches!(outcome, Err(ListError::List(_)));
        self.wants_whole.store(is_no_list, Ordering::Relaxed);
        let result = match outcome {
            Ok(result) => {
                self.is_failing.store(false, Ordering::Relaxed);
                result
            }
            Err(error) => self.on_failure(server, &error),
        };
        self.metrics.revocations_refreshed(result);
    }

    /// Logs the first failure. An older list is no failure while the one in force is fresh: another
    /// server may not have read its store yet.
    fn on_failure(&self, server: &str, error: &ListError) -> ListResult {
        let is_older = matches!(error, ListError::Older { .. });
        let state = self.keys.load();
        let is_fresh = state
            .as_deref()
            .is_some_and(|state| self.keys.has_fresh_revocations(state, Instant::now()));
        if is_older && is_fresh {
            tracing::debug!(server, %error, "an older revocation list is ignored");
        } else if !self.is_failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(server, %error, "revocation list not fetched; keeping the last good one");
        }
        match is_older {
            true => ListResult::Older,
            false => ListResult::Failed,
        }
    }

    fn on_list(&self, response: &str) -> Result<ListResult, ListError> {
        let state = self.keys.load();
        let Some(state) = state.as_deref() else {
            return Ok(ListResult::Failed);
        };
        let (known, keys) = (state.revocations(), state.keys());
        let list = verified(keys, response, known.map(Revocations::list), unix_now())?;
        let (seq, entries) = (list.seq(), list.count());
        let (list, result) = match take(known, keys, list) {
            Taken::Older => {
                return Err(ListError::Older {
                    number: seq,
                    known: known.map_or(0, |known| known.list().seq()),
                });
            }
            Taken::Unchanged(list) => (list, ListResult::Unchanged),
            Taken::Replaced(list) => {
                tracing::info!(seq, entries, "revocation list fetched");
                (list, ListResult::Replaced)
            }
        };
        self.keep(&list);
        let is_changed = result == ListResult::Replaced;
        self.keys
            .install_revocations(Revocations::new(list, keys, Instant::now()), is_changed);
        Ok(result)
    }

    /// Writes the list in the background, if it is not there already.
    fn keep(&self, list: &RevocationList) {
        let Some((file, kept)) = self.cache.clone() else {
            return;
        };
        let list = list.to_string();
        tokio::task::spawn_blocking(move || {
            let mut kept = kept.lock();
            if *kept == list {
                return;
            }
            match owner_only_file::replace(&file, &list) {
                Ok(()) => *kept = list,
                Err(error) => {
                    let file = owner_only_file::describe(&file);
                    tracing::warn!(file, %error, "the revocation list cannot be cached");
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use wire::keys::signing_type::SigningType;
    use wire::keys::{KeySet, VerificationKey};

    use super::super::revocations::tests::{signed_at, signed_list};
    use super::*;
    use crate::issuers::token_cache::TokenCacheConfig;
    use crate::telemetry::metrics::TokenCacheCounters;

    const SECRET: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const MAX_AGE: Duration = Duration::from_secs(300);

    fn refresh() -> RevocationRefresh {
        let keys = CurrentKeys::new(TokenCacheConfig::default(), None, Some(MAX_AGE));
        let key = VerificationKey::parse(SigningType::Hmac, SECRET).unwrap();
        keys.install(KeySet::nameless(key), Instant::now());
        let metrics = Metrics::new(&TokenCacheCounters::default()).0;
        RevocationRefresh::new(Arc::new(keys), metrics)
    }

    fn list(seq: u64, signed_ago: i64) -> String {
        signed_at(SECRET, seq, unix_now() - signed_ago)
    }

    fn fetched(refresh: &RevocationRefresh, list: String) {
        refresh.on_fetch(FetchedList::List(list), "auth");
    }

    fn is_failing(refresh: &RevocationRefresh) -> bool {
        refresh.is_failing.load(Ordering::Relaxed)
    }

    #[test]
    fn a_list_of_a_former_process_goes_on_from_its_cursor() {
        let refresh = refresh();
        assert_eq!(refresh.cursor(), None);
        refresh.on_cache_hit(&list(7, 10));
        let cursor = refresh.cursor();
        assert!(cursor.is_some());
        for (response, next) in [("strange".to_owned(), &None), (list(7, 0), &cursor)] {
            fetched(&refresh, response);
            assert_eq!(refresh.cursor(), *next);
        }
    }

    #[test]
    fn an_old_signature_is_not_fresh() {
        for (signed_ago, fails) in [(3_500, false), (3_700, true)] {
            let refresh = refresh();
            fetched(&refresh, list(7, signed_ago));
            assert_eq!(is_failing(&refresh), fails, "{signed_ago}");
        }
    }

    #[test]
    fn an_older_list_fails_once_the_known_one_is_stale() {
        let refresh = refresh();
        let known = list_of_now(7, &["x"]);
        fetched(&refresh, known.clone());
        fetched(&refresh, list(6, 0));
        assert!(!is_failing(&refresh) && refresh.cursor().is_some());
        let state = refresh.keys.load();
        let keys = state.as_deref().unwrap().keys();
        let stale = FetchTime::before(Instant::now(), MAX_AGE * 2);
        let known = RevocationList::verify(keys, &known, None).unwrap();
        let stale = Revocations::new(known, keys, stale);
        refresh.keys.install_revocations(stale, false);
        fetched(&refresh, list(6, 0));
        assert!(is_failing(&refresh));
    }

    fn list_of_now(seq: u64, tokens: &[&str]) -> String {
        signed_list(SECRET, seq, unix_now(), tokens)
    }
}
