//! The grace period of replaced keys without a name.
//!
//! Off by default: by contract §5.3 only the last fetched key counts. Key sets do not need it:
//! their server lists the retired keys that still count.

use std::time::{Duration, Instant};

use wire::keys::{KeySet, VerificationKey};

/// Max number of replaced keys: a server with another key at every tick must not slow down each
/// verification.
const MAX_REPLACED: usize = 4;

/// The replaced keys, and the end of each.
#[derive(Debug)]
pub(crate) struct PreviousKeys {
    grace: Duration,
    current: Vec<VerificationKey>,
    /// The last successful fetch.
    fetched_at: Option<Instant>,
    previous: Vec<(VerificationKey, Instant)>,
}

impl PreviousKeys {
    /// Accepts each replaced key for `grace` after its last fetch.
    pub(crate) const fn new(grace: Duration) -> Self {
        Self {
            grace,
            current: Vec::new(),
            fetched_at: None,
            previous: Vec::new(),
        }
    }

    /// Returns the keys to trust when `fetched` came at `now`.
    pub(crate) fn joined(&mut self, fetched: KeySet, now: Instant) -> KeySet {
        if self.grace.is_zero() {
            return fetched;
        }
        if fetched.is_named() {
            self.current.clear();
            self.previous.clear();
            return fetched;
        }
        let replaced = std::mem::replace(&mut self.current, fetched.keys().to_vec());
        self.fetched_at = Some(now);
        if let Some(end) = now.checked_add(self.grace) {
            let ends = replaced.into_iter().map(|key| (key, end));
            self.previous.splice(0..0, ends);
        }
        self.drop_ended(now);
        self.key_set()
    }

    /// Returns the keys to trust from `now` on, if they are fewer, with the time of their fetch.
    pub(crate) fn ended(&mut self, now: Instant) -> Option<(KeySet, Instant)> {
        let before = self.previous.len();
        self.drop_ended(now);
        if self.previous.len() == before {
            return None;
        }
        Some((self.key_set(), self.fetched_at?))
    }

    /// Returns the time when the first replaced key ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.previous.iter().map(|(_, end)| *end).min()
    }

    fn drop_ended(&mut self, now: Instant) {
        let mut seen: Vec<_> = self
            .current
            .iter()
            .map(|key| key.thumbprint().clone())
            .collect();
        // The newest first: a key that came back and was replaced again is kept once.
        self.previous.retain(|(key, end)| {
            let is_new = !seen.contains(key.thumbprint());
            seen.push(key.thumbprint().clone());
            is_new && *end > now
        });
        self.previous.truncate(MAX_REPLACED);
    }

    fn key_set(&self) -> KeySet {
        let previous = self.previous.iter().map(|(key, _)| key);
        KeySet::nameless_keys(self.current.iter().chain(previous).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use wire::keys::signing_type::SigningType;

    use super::*;

    fn key(letter: char) -> VerificationKey {
        VerificationKey::parse(SigningType::Hmac, &letter.to_string().repeat(32)).unwrap()
    }

    /// Returns the letters of the trusted keys, the current one first.
    fn letters(keys: &KeySet) -> String {
        let letter = |trusted: &VerificationKey| {
            ('a'..='z')
                .find(|letter| key(*letter).thumbprint() == trusted.thumbprint())
                .unwrap()
        };
        keys.keys().iter().map(letter).collect()
    }

    /// Fetches at these seconds, and checks the trusted keys.
    fn run(grace: u64, fetches: &[(u64, char, &str)]) -> PreviousKeys {
        let mut previous = PreviousKeys::new(Duration::from_secs(grace));
        let start = Instant::now();
        for (second, letter, trusted) in fetches {
            let now = start + Duration::from_secs(*second);
            let keys = previous.joined(KeySet::nameless(key(*letter)), now);
            assert_eq!(letters(&keys), *trusted, "at {second}");
            assert!(!keys.is_named());
        }
        previous
    }

    #[test]
    fn contract_5_3_without_grace_only_the_last_key_counts() {
        let previous = run(0, &[(0, 'a', "a"), (60, 'b', "b"), (120, 'a', "a")]);
        assert_eq!(previous.next_end(), None);
    }

    #[test]
    fn a_replaced_key_counts_for_the_grace_period() {
        run(
            100,
            &[
                (0, 'a', "a"),
                (60, 'b', "ba"),
                (120, 'b', "ba"),
                (159, 'b', "ba"),
                (160, 'b', "b"),
            ],
        );
        run(
            100,
            &[
                (0, 'a', "a"),
                (10, 'b', "ba"),
                (20, 'c', "cba"),
                (30, 'a', "acb"),
                (115, 'd', "dacb"),
                (125, 'd', "dac"),
                (131, 'd', "da"),
            ],
        );
    }

    #[test]
    fn grace_ends_without_a_fetch_and_keeps_the_fetch_time() {
        let mut previous = run(100, &[(0, 'a', "a"), (60, 'b', "ba")]);
        let end = previous.next_end().unwrap();
        let just_before = end - Duration::from_nanos(1);
        assert!(previous.ended(just_before).is_none());
        let (keys, fetched_at) = previous.ended(end).unwrap();
        assert_eq!(letters(&keys), "b");
        assert_eq!(end - fetched_at, Duration::from_secs(100));
        assert_eq!(previous.next_end(), None);
    }

    #[test]
    fn at_most_four_keys_have_grace_and_none_with_a_key_set() {
        let fetches = [
            (0, 'a', "a"),
            (1, 'b', "ba"),
            (2, 'c', "cba"),
            (3, 'd', "dcba"),
            (4, 'e', "edcba"),
            (5, 'f', "fedcb"),
        ];
        let mut previous = run(100, &fetches);
        let named = previous.joined(KeySet::named(vec![key('g')]), Instant::now());
        assert!(named.is_named());
        assert_eq!(previous.next_end(), None);
    }
}
