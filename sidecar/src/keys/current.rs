//! The keys that are trusted at this moment, shared by every request without a lock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwapOption, Guard};
use contract::keys::{Algorithm, KeyId, KeySet, VerificationKey};
use contract::rejection::Rejection;

use super::backoff::Attempts;
use super::on_demand::EarlyFetch;
use crate::keys::token_cache::{TokenCache, VerifiedTokens};

/// Empty until the first fetch succeeded: without a key nothing is verified, and nothing stands in
/// for one.
#[derive(Debug, Default)]
pub(crate) struct CurrentKeys {
    state: ArcSwapOption<KeyState>,
    early_fetch: EarlyFetch,
    attempts: Attempts,
    token_cache: TokenCache,
    /// For how long keys are trusted that are not fetched again; `None` for ever.
    max_age: Option<Duration>,
}

/// One key set and how it came to be trusted.
#[derive(Debug)]
pub(crate) struct KeyState {
    keys: KeySet,
    names: Names,
    /// Moves with every change of the keys and tells apart what was verified under which.
    generation: u64,
    /// Of the last fetch that succeeded, whether or not it brought another key.
    fetched: FetchTime,
    /// What these keys have verified. Others begin with an empty one.
    verified: Arc<VerifiedTokens>,
}

/// When keys were fetched. A process that was started later has no [`Instant`] for that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchTime {
    /// When this process learned of them.
    learned_at: Instant,
    /// How old they were then; `None` where this process fetched them itself.
    cached_for: Option<Duration>,
}

impl FetchTime {
    /// They were fetched at `now`.
    pub(crate) const fn at(now: Instant) -> Self {
        Self {
            learned_at: now,
            cached_for: None,
        }
    }

    /// They were found at `now`, fetched by another process this long before.
    pub(crate) const fn before(now: Instant, age: Duration) -> Self {
        Self {
            learned_at: now,
            cached_for: Some(age),
        }
    }

    fn age(self, now: Instant) -> Duration {
        now.saturating_duration_since(self.learned_at)
            .saturating_add(self.cached_for.unwrap_or_default())
    }
}

/// What tells one key set from another: which keys, under which names and for what algorithm, and whether the
/// names count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    are_asked_for: bool,
    /// Name and thumbprint, by which they are sorted, and algorithm: the thumbprint does not cover it (RFC 7638 §3.2).
    keys: Vec<(KeyId, KeyId, Algorithm)>,
}

impl Names {
    pub(crate) fn of(keys: &KeySet) -> Self {
        let name =
            |key: &VerificationKey| (key.id().clone(), key.thumbprint().clone(), key.algorithm());
        let mut names: Vec<_> = keys.keys().iter().map(name).collect();
        names.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        Self {
            are_asked_for: keys.is_named(),
            keys: names,
        }
    }
}

/// For the log.
impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, ..)) in self.keys.iter().enumerate() {
            let separator = if position == 0 { "" } else { " " };
            write!(f, "{separator}{name}")?;
        }
        Ok(())
    }
}

/// What installing keys changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    First,
    Unchanged,
    Replaced,
}

impl CurrentKeys {
    /// No key yet; each set of keys gets a cache from `token_cache`.
    pub(crate) fn new(token_cache: TokenCache) -> Self {
        Self {
            token_cache,
            ..Self::default()
        }
    }

    /// Trust in them ends when they were last fetched longer ago than this.
    #[must_use]
    pub(crate) fn with_max_age(self, max_age: Option<Duration>) -> Self {
        Self { max_age, ..self }
    }

    /// Whether `state` may verify anything at `now`.
    ///
    /// # Errors
    /// [`Rejection::AuthKeysUnavailable`], [`Rejection::AuthKeysStale`].
    pub(crate) fn usable<'k>(
        &self,
        state: Option<&'k KeyState>,
        now: Instant,
    ) -> Result<&'k KeyState, Rejection> {
        let state = state.ok_or(Rejection::AuthKeysUnavailable)?;
        match self.max_age {
            Some(max_age) if state.age(now) > max_age => Err(Rejection::AuthKeysStale),
            _ => Ok(state),
        }
    }

    /// Where the caches come from.
    pub(crate) const fn token_cache(&self) -> &TokenCache {
        &self.token_cache
    }

    /// The present state; cheap, and valid for as long as the guard is held.
    pub(crate) fn load(&self) -> Guard<Option<Arc<KeyState>>> {
        self.state.load()
    }

    /// How a request asks for newer keys than these.
    pub(crate) const fn early_fetch(&self) -> &EarlyFetch {
        &self.early_fetch
    }

    /// When keys are asked for next, while none can be used.
    pub(crate) const fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// Trusts `keys`, fetched at `now`, and no others from now on. Only the refresh calls it.
    pub(crate) fn install(&self, keys: KeySet, now: Instant) -> Change {
        self.install_of(keys, FetchTime::at(now))
    }

    /// The same with keys that may have been fetched by another process.
    pub(crate) fn install_of(&self, keys: KeySet, fetched: FetchTime) -> Change {
        let names = Names::of(&keys);
        let former = self.state.load();
        let former = former.as_deref();
        let (change, generation, verified) = match former {
            Some(former) if former.names == names => (
                Change::Unchanged,
                former.generation,
                Arc::clone(&former.verified),
            ),
            _ => (
                former.map_or(Change::First, |_| Change::Replaced),
                former.map_or(0, |former| former.generation) + 1,
                Arc::new(self.token_cache.empty()),
            ),
        };
        self.state.store(Some(Arc::new(KeyState {
            keys,
            names,
            generation,
            fetched,
            verified,
        })));
        change
    }
}

impl KeyState {
    pub(crate) fn keys(&self) -> &KeySet {
        &self.keys
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn verified_tokens(&self) -> &VerifiedTokens {
        &self.verified
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.fetched.age(now)
    }

    /// Whether they come from a cache: this process has not fetched any yet.
    pub(crate) const fn is_cached(&self) -> bool {
        self.fetched.cached_for.is_some()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use contract::keys::signing_type::SigningType;

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
    fn there_is_no_key_before_the_first() {
        assert!(CurrentKeys::default().load().is_none());
    }

    #[test]
    fn the_generation_moves_with_the_key_and_the_age_with_every_fetch() {
        let keys = CurrentKeys::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (seconds, letters, change, generation) in [
            (0, "a", Change::First, 1),
            (60, "a", Change::Unchanged, 1),
            (120, "b", Change::Replaced, 2),
            (180, "a", Change::Replaced, 3),
            (240, " a", Change::Replaced, 4),
            (300, "ab", Change::Replaced, 5),
            (360, "ba", Change::Unchanged, 5),
            (420, "ab", Change::Unchanged, 5),
            (480, " b", Change::Replaced, 6),
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
            ("RS256", Change::First),
            ("RS256", Change::Unchanged),
            ("PS256", Change::Replaced),
        ] {
            assert_eq!(
                keys.install(set(algorithm), Instant::now()),
                change,
                "{algorithm}"
            );
        }
    }

    #[test]
    fn keys_that_are_not_fetched_again_are_trusted_for_a_while() {
        const HOUR: Duration = Duration::from_secs(3600);
        let keys = CurrentKeys::default().with_max_age(Some(HOUR));
        let fetched_at = Instant::now();
        let judged = |keys: &CurrentKeys, now| {
            let state = keys.load();
            keys.usable(state.as_deref(), now).map(KeyState::generation)
        };
        assert_eq!(
            judged(&keys, fetched_at),
            Err(Rejection::AuthKeysUnavailable)
        );
        keys.install(key_set("a"), fetched_at);
        for (age, expected) in [
            (Duration::ZERO, Ok(1)),
            (HOUR, Ok(1)),
            (HOUR + Duration::from_secs(1), Err(Rejection::AuthKeysStale)),
        ] {
            assert_eq!(judged(&keys, fetched_at + age), expected, "{age:?}");
        }
        keys.install(key_set("a"), fetched_at + 2 * HOUR);
        assert_eq!(judged(&keys, fetched_at + 2 * HOUR), Ok(1));
        let for_ever = CurrentKeys::default();
        for_ever.install(key_set("a"), fetched_at);
        assert_eq!(judged(&for_ever, fetched_at + 1000 * HOUR), Ok(1));
    }

    #[test]
    fn the_age_of_cached_keys_goes_on_from_their_fetch_until_the_first_one_here() {
        const HOUR: Duration = Duration::from_secs(3600);
        let keys = CurrentKeys::default().with_max_age(Some(2 * HOUR));
        let now = Instant::now();
        keys.install_of(key_set("a"), FetchTime::before(now, HOUR));
        let judged = |at| {
            let state = keys.load();
            let usable = keys.usable(state.as_deref(), at);
            usable.map(|state| (state.age(at), state.is_cached()))
        };
        assert_eq!(judged(now), Ok((HOUR, true)));
        assert_eq!(judged(now + HOUR), Ok((2 * HOUR, true)));
        assert_eq!(judged(now + 2 * HOUR), Err(Rejection::AuthKeysStale));
        // Longer ago than the machine runs.
        keys.install_of(key_set("a"), FetchTime::before(now, Duration::MAX));
        assert_eq!(judged(now + HOUR), Err(Rejection::AuthKeysStale));
        keys.install(key_set("a"), now + HOUR);
        assert_eq!(judged(now + HOUR), Ok((Duration::ZERO, false)));
    }
}
