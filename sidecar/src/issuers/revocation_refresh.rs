//! Keeps the revocation list fresh: each fetch of the keys brings one.
//!
//! A failure leaves the last list in force, and the keys as they are.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::HeaderValue;
use parking_lot::Mutex;
use runtime::files::owner_only_file;
use runtime::process::clock::unix_now;
use wire::token::revocations::RevocationList;

use super::current::{CurrentKeys, FetchTime};
use super::revocations::{
    FetchedList, ListError, Revocations, Taken, check_signature_age, take, verified,
};
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
    /// The last list, beside the key cache, and its content.
    cache: Option<(PathBuf, Arc<Mutex<String>>)>,
}

impl RevocationRefresh {
    pub(crate) fn new(keys: Arc<CurrentKeys>, metrics: Metrics) -> Self {
        Self {
            keys,
            metrics,
            is_failing: AtomicBool::new(false),
            cache: None,
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
                    .install_revocations(Revocations::new(list, state.keys(), fetched), true);
                tracing::info!(seq, entries, "revocation list loaded from its cache");
            }
            Err(error) => tracing::warn!(%error, "the cached revocation list is not used"),
        }
    }

    /// Puts a fetched list in force. Returns the version that the next fetch names, if the list was
    /// accepted.
    pub(crate) fn on_fetch(&self, fetched: FetchedList, server: &str) -> Option<HeaderValue> {
        let outcome = match fetched {
            FetchedList::NotRequested => return None,
            FetchedList::NotModified => self.on_confirmed().map(|it| (it, None)),
            FetchedList::List { jws, version } => self.on_list(&jws).map(|it| (it, version)),
            FetchedList::Absent if !self.keys.requires_revocations() => {
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
            Err(error) => (self.on_failure(server, &error), None),
        };
        self.metrics.revocations_refreshed(result);
        version
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

    fn on_list(&self, jws: &str) -> Result<ListResult, ListError> {
        let state = self.keys.load();
        let Some(state) = state.as_deref() else {
            return Ok(ListResult::Failed);
        };
        let list = verified(state.keys(), jws, unix_now())?;
        let (known, keys) = (state.revocations(), state.keys());
        let (seq, known_seq) = (list.seq(), known.map_or(0, |known| known.list().seq()));
        match take(known, keys, list) {
            Taken::Older => {
                return Err(ListError::Older {
                    number: seq,
                    known: known_seq,
                });
            }
            Taken::Unchanged(list) => {
                self.keys
                    .install_revocations(Revocations::new(list, keys, Instant::now()), false);
                self.keep(jws);
                return Ok(ListResult::Unchanged);
            }
            Taken::Replaced(list) => {
                let entries = list.entries();
                tracing::info!(seq, entries, "revocation list fetched");
                self.keys
                    .install_revocations(Revocations::new(list, keys, Instant::now()), true);
            }
        }
        self.keep(jws);
        Ok(ListResult::Replaced)
    }

    /// The server has the list in force. A server signs it anew within the hour, with another version.
    fn on_confirmed(&self) -> Result<ListResult, ListError> {
        let state = self.keys.load();
        if let Some(state) = state.as_ref()
            && let Some(known) = state.revocations()
        {
            check_signature_age(known.list(), unix_now())?;
            let confirmed = known.confirmed(state.keys(), Instant::now());
            self.keys.install_revocations(confirmed, false);
        }
        Ok(ListResult::Unchanged)
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use wire::keys::signing_type::SigningType;
    use wire::keys::{KeySet, VerificationKey};

    use super::super::revocations::tests::signed_at;
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

    fn list(seq: u64, signed_ago: i64) -> FetchedList {
        FetchedList::List {
            jws: signed_at(SECRET, seq, unix_now() - signed_ago),
            version: Some(HeaderValue::from_static("\"1\"")),
        }
    }

    /// Returns true if the fetch was accepted, and is followed by one that names its version.
    fn is_accepted(refresh: &RevocationRefresh, fetched: FetchedList) -> bool {
        refresh.on_fetch(fetched, "auth").is_some()
    }

    #[test]
    fn an_old_signature_is_not_confirmed_for_ever() {
        for (signed_ago, is_failing) in [(3_500, false), (3_700, true)] {
            let refresh = refresh();
            let jws = signed_at(SECRET, 7, unix_now() - signed_ago);
            refresh.on_cache_hit(&jws);
            refresh.on_fetch(FetchedList::NotModified, "auth");
            let failing = refresh.is_failing.load(Ordering::Relaxed);
            assert_eq!(failing, is_failing, "{signed_ago}");
        }
    }

    #[test]
    fn a_new_signature_of_the_same_list_counts() {
        let refresh = refresh();
        let jws = signed_at(SECRET, 7, unix_now() - 3_700);
        refresh.on_cache_hit(&jws);
        assert!(is_accepted(&refresh, list(7, 10)));
        refresh.on_fetch(FetchedList::NotModified, "auth");
        assert!(!refresh.is_failing.load(Ordering::Relaxed));
        // An older signature takes nothing back.
        assert!(is_accepted(&refresh, list(7, 3_500)));
        let state = refresh.keys.load();
        let known = state.as_ref().unwrap().revocations().unwrap();
        assert!(unix_now() - known.list().issued_at() < 60);
    }

    #[test]
    fn an_older_list_fails_once_the_known_one_is_stale() {
        let refresh = refresh();
        assert!(is_accepted(&refresh, list(7, 0)));
        assert!(!is_accepted(&refresh, list(6, 0)));
        assert!(!refresh.is_failing.load(Ordering::Relaxed));
        let jws = signed_at(SECRET, 7, unix_now());
        let key = VerificationKey::parse(SigningType::Hmac, SECRET).unwrap();
        let keys = KeySet::nameless(key);
        let list_of = RevocationList::verify(&keys, &jws).unwrap();
        let stale = FetchTime::before(Instant::now(), MAX_AGE * 2);
        refresh
            .keys
            .install_revocations(Revocations::new(list_of, &keys, stale), false);
        assert!(!is_accepted(&refresh, list(6, 0)));
        assert!(refresh.is_failing.load(Ordering::Relaxed));
    }
}
