//! The refresh of one issuer's revocation list: each fetch of its keys brings one.
//!
//! A failure leaves the last list in force, and the keys as they are.

use std::sync::Arc;

use postern_process::clock::{self, unix_now};
use postern_token::keys::KeySet;
use postern_token::revocations::RevocationList;

use super::fetched_list::{FetchedList, ListError, age_of_list, verify_fetched};
use super::{CachedList, Revocations};
use crate::issuers::current::{CurrentKeys, outage_in_words};
use crate::issuers::fetch_time::FetchTime;
use crate::telemetry::metrics::{ListResult, Metrics};

/// Keeps the list of one issuer fresh.
#[derive(Debug)]
pub(crate) struct RevocationRefresh {
    keys: Arc<CurrentKeys>,
    metrics: Metrics,
    /// True after a response that was no list, or not the end of the one in force, until a list is
    /// verified.
    wants_whole: bool,
}

impl RevocationRefresh {
    pub(crate) const fn new(keys: Arc<CurrentKeys>, metrics: Metrics) -> Self {
        Self {
            keys,
            metrics,
            wants_whole: false,
        }
    }

    /// Puts the list of a former process in force.
    pub(crate) fn on_cached(&self, cached: &CachedList) {
        let state = self.keys.load();
        // Without keys no list can be verified.
        let Some(state) = state.as_deref() else {
            return;
        };
        match RevocationList::verify(state.keys(), &cached.list, None) {
            Ok(list) => {
                // However old: the list of our own file still ends tokens, and has its age.
                let age = age_of_list(list.issued_at(), cached.fetched_at, unix_now());
                let (seq, entries) = (list.seq(), list.count());
                let fetched = FetchTime::before(clock::instant(), age);
                self.keys.list.install(Revocations::from_cached(
                    list,
                    cached.number,
                    state.keys(),
                    fetched,
                ));
                tracing::info!(seq, entries, "revocation list loaded from the key cache");
            }
            Err(error) => tracing::warn!(%error, "the cached revocation list is not used"),
        }
    }

    /// Returns the name of the lines that the next fetch need not bring.
    pub(crate) fn cursor(&self) -> Option<String> {
        if self.wants_whole {
            return None;
        }
        Some(self.keys.list.load().as_ref()?.list().cursor())
    }

    /// Puts a fetched list in force.
    pub(crate) fn on_fetch(&mut self, fetched: FetchedList, server: &str) {
        let outcome = match fetched {
            FetchedList::NotRequested => return,
            // A server without lists is a valid choice here: one warning, and no failed fetch.
            FetchedList::Failed(ListError::Absent) if !self.keys.requires_revocations() => {
                if self.begins_outage(server, &ListError::Absent) {
                    tracing::warn!(
                        server,
                        "the auth server publishes no revocation list: revoked tokens are accepted"
                    );
                }
                return;
            }
            FetchedList::Received(list) => {
                let state = self.keys.load();
                let Some(state) = state.as_deref() else {
                    // Without keys no list can be verified, which shows nothing about an outage or our lines.
                    self.metrics.revocations_refreshed(ListResult::Failed);
                    return;
                };
                self.on_list(&list, state.keys())
            }
            FetchedList::Failed(error) => Err(error),
        };
        match &outcome {
            // The response may be the end of other lines than ours: a whole list needs no lines to fit.
            Err(ListError::List(_)) => self.wants_whole = true,
            // No list came, which shows nothing about our lines.
            Err(ListError::Transport(_) | ListError::Status(_) | ListError::Absent) => {}
            // All of these were verified, so the end of our lines can be requested again.
            Ok(_) | Err(ListError::TooOld(_) | ListError::Ahead(_) | ListError::Older { .. }) => {
                self.wants_whole = false;
            }
        }
        let result = match outcome {
            Ok(result) => {
                if let Some(outage) = self.keys.list.failed.swap(None) {
                    tracing::info!(server, %outage, "revocation lists are fetched again");
                }
                result
            }
            Err(error) => self.on_failure(server, &error),
        };
        self.metrics.revocations_refreshed(result);
    }

    /// Verifies a list with the keys in force, which are those of the same fetch: the task installs them before the
    /// list.
    fn on_list(&self, response: &str, keys: &KeySet) -> Result<ListResult, ListError> {
        let known = self.keys.list.load();
        let known = known.as_deref();
        let now = unix_now();
        let list = verify_fetched(keys, response, known.map(Revocations::list), now)?;
        let (seq, entries) = (list.seq(), list.count());
        let age = age_of_list(list.issued_at(), now, now);
        let fetched = FetchTime::before(clock::instant(), age);
        let next = Revocations::with_latest(known, list, keys, fetched)?;
        if !self.keys.list.install(next) {
            return Ok(ListResult::Unchanged);
        }
        tracing::info!(seq, entries, "revocation list fetched");
        Ok(ListResult::Replaced)
    }

    /// Notes an outage, which is one log line. Returns true for its first failure.
    fn begins_outage(&self, server: &str, error: &ListError) -> bool {
        let outage = &self.keys.list.failed;
        if outage.load().is_some() {
            return false;
        }
        let in_words = outage_in_words(unix_now(), &format!("{server}: {error}"));
        outage.store(Some(Arc::new(in_words)));
        true
    }

    /// Logs the first failure. An older list is no failure while the one in force is fresh: another
    /// server may not have read its store yet.
    fn on_failure(&self, server: &str, error: &ListError) -> ListResult {
        let is_older = matches!(error, ListError::Older { .. });
        if is_older && self.keys.has_fresh_revocations(clock::instant()) {
            tracing::debug!(server, %error, "an older revocation list is ignored");
        } else if self.begins_outage(server, error) {
            let kept = if self.keys.list.load().is_some() {
                "keeping the last good one"
            } else {
                "none is in force"
            };
            tracing::warn!(server, %error, "revocation list not fetched; {kept}");
        }
        if is_older {
            ListResult::Older
        } else {
            ListResult::Failed
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::{Duration, Instant};

    use http::StatusCode;

    use super::super::fetched_list::tests::{keys, secret, signed};
    use super::*;
    use crate::issuers::token_cache::TokenCacheConfig;
    use crate::telemetry::metrics::TokenCacheCounters;

    const MAX_AGE: Duration = Duration::from_secs(300);

    fn refresh() -> RevocationRefresh {
        let current = CurrentKeys::new(TokenCacheConfig::default(), None, Some(MAX_AGE));
        current.install(keys("a"), Instant::now());
        let metrics = Metrics::new(&TokenCacheCounters::default()).0;
        RevocationRefresh::new(Arc::new(current), metrics)
    }

    fn list_now(seq: u64, tokens: &[&str]) -> String {
        signed(&secret('a'), seq, unix_now(), tokens)
    }

    #[test]
    fn a_cached_list_goes_on_from_its_cursor_and_number() {
        let mut refresh = refresh();
        assert_eq!(refresh.cursor(), None);
        let cached = CachedList {
            fetched_at: unix_now() - 100,
            number: 9,
            list: list_now(7, &["x"]),
        };
        refresh.on_cached(&cached);
        let age = refresh
            .keys
            .list
            .load()
            .as_ref()
            .unwrap()
            .age(Instant::now());
        assert!((100..110).contains(&age.as_secs()), "{age:?}");
        let cursor = refresh.cursor();
        assert!(cursor.is_some());
        for (response, next) in [
            (Ok("strange".to_owned()), &None),
            (Err(ListError::Status(StatusCode::BAD_GATEWAY)), &None),
            (Ok(list_now(8, &[])), &cursor),
            (Ok(list_now(7, &["x"])), &cursor),
        ] {
            refresh.on_fetch(response.into(), "auth");
            assert_eq!(refresh.cursor(), *next);
        }
        let list = refresh.keys.list.load();
        assert_eq!(list.as_ref().unwrap().cached(0).number, 9);
    }
}
