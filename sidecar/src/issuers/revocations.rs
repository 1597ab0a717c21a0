//! The revocation list in force, and the rule by which a fetched list takes its place.
//!
//! A failure leaves the last list in force, and the keys as they are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postern_process::clock::{self, unix_now};
use postern_token::keys::{KeyId, KeySet};
use postern_token::revocations::{RevocationList, TokenDigests};
use postern_token::times::moment;

pub(crate) mod fetched_list;

use self::fetched_list::{FetchedList, ListError, as_fresh_as_signed, verify_fetched};
use super::cache_file::CachedList;
use super::current::CurrentKeys;
use super::installed_keys::FetchTime;
use crate::telemetry::metrics::{ListResult, Metrics};

/// Former lists that count beside the latest: installations replace all keys at once rarely.
const MAX_FORMER: usize = 3;

/// The lists in force.
#[derive(Debug)]
pub(crate) struct Revocations {
    latest: Arc<NumberedList>,
    fetched: FetchTime,
    /// Lists of other keys. They still count: numbers begin anew with the keys of a new store, but also
    /// at a server that is cut off, and has keys that were revoked since.
    former: Vec<Arc<NumberedList>>,
}

/// A list, and the names of the keys in force at its fetch.
#[derive(Debug)]
struct NumberedList {
    list: RevocationList,
    /// The largest number of the list and of those before it.
    number: u64,
    keys: Vec<KeyId>,
}

impl NumberedList {
    fn new(list: RevocationList, keys: &KeySet) -> Self {
        Self {
            number: list.seq(),
            list,
            keys: names(keys).cloned().collect(),
        }
    }

    /// Returns false where all keys of the list's fetch are gone: the numbers have begun anew.
    fn is_comparable(&self, keys: &KeySet) -> bool {
        names(keys).any(|name| self.keys.contains(name))
    }

    /// Returns the list that follows this one. A list that only adds to it is never older, and leaves
    /// its number.
    fn followed_by(&self, next: Self) -> Result<Self, ListError> {
        if next.number < self.number && !next.list.extends(&self.list) {
            return Err(ListError::Older {
                number: next.number,
                known: self.number,
            });
        }
        Ok(Self {
            number: next.number.max(self.number),
            ..next
        })
    }
}

impl Revocations {
    /// Puts a verified list in place of the one of `known` that has a key in common with it.
    ///
    /// # Errors
    /// [`ListError::Older`]: a server that has not read its store yet, or a replay.
    fn with_latest(
        known: Option<&Self>,
        list: RevocationList,
        keys: &KeySet,
        fetched: impl Into<FetchTime>,
    ) -> Result<Self, ListError> {
        let mut next = NumberedList::new(list, keys);
        let mut former = known.map(Self::all).unwrap_or_default();
        // Numbers are compared only with the list of the same keys; other lists stay beside the new one.
        if let Some(index) = former.iter().position(|known| known.is_comparable(keys)) {
            next = former.remove(index).followed_by(next)?;
        }
        former.truncate(MAX_FORMER);
        Ok(Self {
            latest: Arc::new(next),
            fetched: fetched.into(),
            former,
        })
    }

    /// Returns the lists in force, the latest first.
    fn all(&self) -> Vec<Arc<NumberedList>> {
        std::iter::once(&self.latest)
            .chain(&self.former)
            .cloned()
            .collect()
    }

    /// Returns true if one of the lists ends the token.
    pub(crate) fn revokes(&self, token: &TokenDigests) -> bool {
        std::iter::once(&self.latest)
            .chain(&self.former)
            .any(|known| known.list.revokes(token))
    }

    /// Returns true if the latest lists end the same tokens.
    pub(super) fn has_lines_of(&self, other: &Self) -> bool {
        self.list().count() == other.list().count() && self.list().extends(other.list())
    }

    /// Returns the latest list as a file keeps it.
    pub(super) fn cached(&self) -> CachedList {
        CachedList {
            number: self.latest.number,
            list: self.list().to_string(),
        }
    }

    /// Returns the latest list.
    pub(crate) fn list(&self) -> &RevocationList {
        &self.latest.list
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.fetched.age(now)
    }
}

fn names(keys: &KeySet) -> impl Iterator<Item = &KeyId> {
    keys.keys().iter().map(|key| key.id())
}

/// Keeps the list of one issuer fresh: each fetch of its keys brings one.
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
    pub(super) fn on_cached(&self, cached: &CachedList) {
        let state = self.keys.load();
        // Without keys no list can be verified.
        let Some(state) = state.as_deref() else {
            return;
        };
        match RevocationList::verify(state.keys(), &cached.list, None) {
            Ok(list) => {
                // However old: the list of our own file still ends tokens, and has its age.
                let age = unix_now().saturating_sub(list.issued_at());
                // Signed ahead of our clock it counts as signed now.
                let age = Duration::from_secs(u64::try_from(age).unwrap_or_default());
                let (seq, entries) = (list.seq(), list.count());
                let latest = NumberedList {
                    number: cached.number.max(seq),
                    ..NumberedList::new(list, state.keys())
                };
                self.keys.list.install(Revocations {
                    latest: Arc::new(latest),
                    fetched: FetchTime::before(clock::instant(), age),
                    former: Vec::new(),
                });
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
            FetchedList::Received(list) => self.on_list(&list),
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
                self.keys.list.failed.store(None);
                result
            }
            Err(error) => self.on_failure(server, &error),
        };
        self.metrics.revocations_refreshed(result);
    }

    fn on_list(&self, response: &str) -> Result<ListResult, ListError> {
        let state = self.keys.load();
        // Without keys no list can be verified.
        let Some(state) = state.as_deref() else {
            return Ok(ListResult::Failed);
        };
        // The keys in force are those of the same fetch: the task installs them before the list.
        let keys = state.keys();
        let known = self.keys.list.load();
        let known = known.as_deref();
        let now = unix_now();
        let list = verify_fetched(keys, response, known.map(Revocations::list), now)?;
        let (seq, entries) = (list.seq(), list.count());
        let fetched = as_fresh_as_signed(list.issued_at(), now, clock::instant());
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
        let since = moment(unix_now());
        outage.store(Some(Arc::new(format!(
            "the fetches fail since {since}: {server}: {error}"
        ))));
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
                "no list was fetched before"
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
    use http::StatusCode;

    use super::fetched_list::tests::{keys, secret, signed};
    use super::*;
    use crate::issuers::token_cache::TokenCacheConfig;
    use crate::telemetry::metrics::TokenCacheCounters;

    impl Revocations {
        pub(crate) fn new(
            list: RevocationList,
            keys: &KeySet,
            fetched: impl Into<FetchTime>,
        ) -> Self {
            Self {
                latest: Arc::new(NumberedList::new(list, keys)),
                fetched: fetched.into(),
                former: Vec::new(),
            }
        }
    }

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
            number: 9,
            list: list_now(7, &["x"]),
        };
        refresh.on_cached(&cached);
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
        assert_eq!(list.as_ref().unwrap().cached().number, 9);
    }
}
