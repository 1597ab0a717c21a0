//! The currently trusted keys of one issuer, which every request reads without a lock and its task
//! alone replaces.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwapOption, Guard};
use postern_contract::rejection::Rejection;
use postern_process::clock::unix_now;
use postern_token::keys::KeySet;
use postern_token::sources::bearer::Bearer;
use postern_token::times::moment;

use super::fetch_time::FetchTime;
use super::fingerprint::KeySetFingerprint;
use super::installed_keys::InstalledKeys;
use super::on_demand::OnDemandFetch;
use super::revocations::list_in_force::ListInForce;
use super::server_clock::ServerClock;
use super::token_cache::TokenCacheConfig;
use crate::telemetry::metrics::RefreshResult;

/// The keys of one issuer, empty until the first successful fetch: without a key no token is verified, and
/// there is no placeholder.
#[derive(Debug, Default)]
pub(crate) struct CurrentKeys {
    /// The issuer's name; `None` for the only issuer.
    pub(crate) name: Option<String>,
    state: ArcSwapOption<InstalledKeys>,
    on_demand: OnDemandFetch,
    /// The last fetch, if it failed.
    failed: ArcSwapOption<FailedFetch>,
    /// True while the key cache cannot be written.
    pub(crate) cache_fails: Arc<AtomicBool>,
    /// The clock of its server.
    pub(crate) clock: ServerClock,
    token_cache: TokenCacheConfig,
    /// The time for which keys are trusted without a fetch; `None`: forever.
    max_age: Option<Duration>,
    /// The age up to which a revocation list counts; `None` where none is required.
    max_revocation_age: Option<Duration>,
    /// The revocation list, which all issuers share.
    pub(crate) list: Arc<ListInForce>,
}

/// A fetch that brought no keys.
#[derive(Debug)]
pub(crate) struct FailedFetch {
    /// For the readiness report.
    pub(crate) reason: String,
    /// The time since which fetches fail, in seconds since 1970.
    pub(crate) since: i64,
    /// The same time of this process, for comparisons.
    pub(crate) began: Instant,
    /// The time of the next fetch.
    pub(crate) next: Instant,
}

/// Describes an outage that began `since`, in seconds since 1970.
pub(super) fn outage_in_words(since: i64, reason: &str) -> String {
    format!("the fetches fail since {}: {reason}", moment(since))
}

impl CurrentKeys {
    /// Starts without a key; each set of keys gets a cache from `token_cache`. Keys older than `max_age` are
    /// not trusted, and with `max_revocation_age` no keys without a revocation list of at most that age.
    pub(crate) fn new(
        token_cache: TokenCacheConfig,
        max_age: Option<Duration>,
        max_revocation_age: Option<Duration>,
    ) -> Self {
        Self {
            token_cache,
            max_age,
            max_revocation_age,
            ..Self::default()
        }
    }

    /// Shares `list`, which the task of one issuer replaces.
    #[must_use]
    pub(crate) fn with_list(self, list: &Arc<ListInForce>) -> Self {
        Self {
            list: Arc::clone(list),
            ..self
        }
    }

    /// Gives the issuer a name.
    #[must_use]
    pub(crate) fn with_name(self, name: Option<String>) -> Self {
        Self { name, ..self }
    }

    /// Puts the name in front of a text about the issuer.
    pub(super) fn named(&self, text: String) -> String {
        match &self.name {
            Some(name) => format!("{name}: {text}"),
            None => text,
        }
    }

    /// Returns `state` if tokens may be verified with it at `now`.
    ///
    /// # Errors
    /// The errors of [`Self::usable`], and [`Rejection::RevocationsStale`].
    pub(crate) fn trusted<'k>(
        &self,
        state: Option<&'k InstalledKeys>,
        now: Instant,
    ) -> Result<&'k InstalledKeys, Rejection> {
        let state = self.usable(state, now)?;
        // Keys alone are not enough: a token may be revoked by a list that this sidecar has not read.
        if self.has_fresh_revocations(now) {
            Ok(state)
        } else {
            Err(Rejection::RevocationsStale)
        }
    }

    /// Returns true if tokens count only beside a fresh revocation list.
    pub(crate) const fn requires_revocations(&self) -> bool {
        self.max_revocation_age.is_some()
    }

    /// Returns true unless a required revocation list is missing or too old.
    pub(crate) fn has_fresh_revocations(&self, now: Instant) -> bool {
        let Some(max_age) = self.max_revocation_age else {
            return true;
        };
        let list = self.list.load();
        list.as_ref().is_some_and(|list| list.age(now) <= max_age)
    }

    /// Returns `state` if it may verify tokens at `now`.
    ///
    /// # Errors
    /// [`Rejection::AuthKeysUnavailable`], [`Rejection::AuthKeysStale`].
    pub(crate) fn usable<'k>(
        &self,
        state: Option<&'k InstalledKeys>,
        now: Instant,
    ) -> Result<&'k InstalledKeys, Rejection> {
        let state = state.ok_or(Rejection::AuthKeysUnavailable)?;
        match self.max_age {
            Some(max_age) if state.age(now) > max_age => Err(Rejection::AuthKeysStale),
            _ => Ok(state),
        }
    }

    /// Returns the settings of the token caches.
    #[cfg(test)]
    pub(crate) const fn token_cache(&self) -> &TokenCacheConfig {
        &self.token_cache
    }

    /// Returns the present state; cheap, and valid for as long as the guard is held.
    pub(crate) fn load(&self) -> Guard<Option<Arc<InstalledKeys>>> {
        self.state.load()
    }

    /// Returns the fetch on demand, for requests that need newer keys.
    pub(crate) const fn on_demand(&self) -> &OnDemandFetch {
        &self.on_demand
    }

    /// Returns true where a fetch for this token fails as the last one did, or may not begin.
    pub(crate) fn is_fetch_in_vain(&self, token: Bearer<'_>, now: Instant) -> bool {
        let is_away = self.failed().is_some() || self.on_demand.until_next(now).is_some();
        is_away && !self.on_demand.lacks(token, now)
    }

    /// Returns the last fetch, if it failed.
    pub(crate) fn failed(&self) -> Option<Arc<FailedFetch>> {
        self.failed.load_full()
    }

    /// Returns the time, in seconds since 1970, until which keys of this age are trusted; `None`:
    /// forever.
    pub(crate) fn trusted_until(&self, age: Duration) -> Option<i64> {
        let fetched = unix_now().saturating_sub_unsigned(age.as_secs());
        Some(fetched.saturating_add_unsigned(self.max_age?.as_secs()))
    }

    /// Records the result of a fetch.
    pub(super) fn set_failed(&self, failed: Option<FailedFetch>) {
        self.failed.store(failed.map(Arc::new));
    }

    /// Returns the time until the next fetch may bring the key that a token needs; `None` if a fetch on
    /// demand may begin now.
    pub(crate) fn until_next(&self, now: Instant) -> Option<Duration> {
        match self.trusted(self.load().as_deref(), now) {
            Ok(_) => self.on_demand.until_next(now),
            // Without trusted keys the next try of the task decides, not the limit of fetches on demand.
            Err(_) => match self.failed() {
                Some(failed) => Some(failed.next.saturating_duration_since(now)),
                None => Some(Duration::ZERO),
            },
        }
    }

    /// Trusts `keys` and no others from now on.
    pub(crate) fn install(&self, keys: KeySet, fetched: impl Into<FetchTime>) -> RefreshResult {
        let names = KeySetFingerprint::new(&keys);
        let former = self.state.load();
        let former_generation = former.as_ref().map_or(0, |former| former.generation);
        let same = former.as_ref().filter(|former| former.names == names);
        let (change, generation, verified) = match same {
            // The same keys have verified these tokens; other keys begin without any.
            Some(same) => {
                let verified = Arc::clone(&same.verified);
                (RefreshResult::Unchanged, former_generation, verified)
            }
            None => {
                let verified = Arc::new(self.token_cache.empty());
                (RefreshResult::Replaced, former_generation + 1, verified)
            }
        };
        self.state.store(Some(Arc::new(InstalledKeys {
            keys,
            names,
            generation,
            fetched: fetched.into(),
            verified,
            list: Arc::clone(&self.list),
        })));
        change
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use postern_token::keys::signing_type::SigningType;
    use postern_token::keys::{Algorithm, VerificationKey};

    use super::*;

    fn key(letter: char) -> VerificationKey {
        VerificationKey::parse(SigningType::Hmac, &letter.to_string().repeat(32)).unwrap()
    }

    /// One letter is a key without a name, several are named keys.
    fn key_set(letters: &str) -> KeySet {
        let mut keys: Vec<_> = letters.trim().chars().map(key).collect();
        match letters.len() {
            1 => KeySet::nameless(keys.remove(0)),
            _ => KeySet::named(keys),
        }
    }

    #[test]
    fn keys_change_the_generation_and_fetches_the_age() {
        let keys = CurrentKeys::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (seconds, letters, change, generation) in [
            (0, "a", RefreshResult::Replaced, 1),
            (60, "a", RefreshResult::Unchanged, 1),
            (120, "b", RefreshResult::Replaced, 2),
            (180, "a", RefreshResult::Replaced, 3),
            (240, " a", RefreshResult::Replaced, 4),
            (300, "ab", RefreshResult::Replaced, 5),
            (360, "ba", RefreshResult::Unchanged, 5),
            (420, "ab", RefreshResult::Unchanged, 5),
            (480, " b", RefreshResult::Replaced, 6),
        ] {
            assert_eq!(keys.install(key_set(letters), at(seconds)), change);
            let state = keys.load();
            let state = state.as_ref().unwrap();
            assert_eq!(state.generation(), generation, "{letters}");
            assert_eq!(state.keys().keys().len(), letters.trim().len());
            assert_eq!(state.age(at(seconds + 5)), Duration::from_secs(5));
        }
    }

    #[test]
    fn a_key_that_changes_its_algorithm_is_another_one() {
        let set = |algorithm: &str| {
            let jwks = serde_json::json!({"keys": [{
                "kty": "RSA", "kid": "a", "alg": algorithm, "e": "AQAB",
                "n": "xcXF".repeat(86),
            }]});
            let allowed = [Algorithm::RS256, Algorithm::PS256];
            KeySet::from_jwks(jwks.to_string().as_bytes(), &allowed).unwrap()
        };
        let keys = CurrentKeys::default();
        for (algorithm, change) in [
            ("RS256", RefreshResult::Replaced),
            ("RS256", RefreshResult::Unchanged),
            ("PS256", RefreshResult::Replaced),
        ] {
            assert_eq!(
                keys.install(set(algorithm), Instant::now()),
                change,
                "{algorithm}"
            );
        }
    }

    #[test]
    fn cached_keys_age_from_the_fetch_of_the_former_process() {
        const HOUR: Duration = Duration::from_secs(3600);
        let keys = CurrentKeys::new(TokenCacheConfig::default(), Some(2 * HOUR), None);
        let now = Instant::now();
        keys.install(key_set("a"), FetchTime::before(now, HOUR));
        let checked = |at| {
            let state = keys.load();
            let usable = keys.usable(state.as_deref(), at);
            usable.map(|state| (state.age(at), state.is_cached()))
        };
        assert_eq!(checked(now), Ok((HOUR, true)));
        assert_eq!(checked(now + HOUR), Ok((2 * HOUR, true)));
        assert_eq!(checked(now + 2 * HOUR), Err(Rejection::AuthKeysStale));
        // Longer ago than the machine runs.
        keys.install(key_set("a"), FetchTime::before(now, Duration::MAX));
        assert_eq!(checked(now + HOUR), Err(Rejection::AuthKeysStale));
        keys.install(key_set("a"), now + HOUR);
        assert_eq!(checked(now + HOUR), Ok((Duration::ZERO, false)));
    }
}
