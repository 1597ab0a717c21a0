//! The grace that keys without a name may be given after another one took their place.
//!
//! Off by default: contract §5.3 has the last fetched key alone count. Key sets have no use for it:
//! their server says itself which retired keys still count.

use std::time::{Duration, Instant};

use contract::keys::{KeySet, VerificationKey};

/// A server that gives out another key at every tick must not make every token a long search.
const MOST: usize = 4;

/// The keys that gave way, and until when each is still tried.
#[derive(Debug)]
pub(crate) struct PreviousKeys {
    grace: Duration,
    current: Vec<VerificationKey>,
    /// Of the last fetch that succeeded.
    fetched_at: Option<Instant>,
    previous: Vec<(VerificationKey, Instant)>,
}

impl PreviousKeys {
    /// Each former key counts for `grace` after it was last seen to be replaced.
    pub(crate) const fn new(grace: Duration) -> Self {
        Self {
            grace,
            current: Vec::new(),
            fetched_at: None,
            previous: Vec::new(),
        }
    }

    /// What is to be trusted when `fetched` came at `now`.
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

    /// What is to be trusted from `now` on, if that is less than before, with the time of the fetch it
    /// came from.
    pub(crate) fn ended(&mut self, now: Instant) -> Option<(KeySet, Instant)> {
        let before = self.previous.len();
        self.drop_ended(now);
        if self.previous.len() == before {
            return None;
        }
        Some((self.key_set(), self.fetched_at?))
    }

    /// When the first of the former keys ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.previous.iter().map(|(_, end)| *end).min()
    }

    fn drop_ended(&mut self, now: Instant) {
        let mut seen: Vec<_> = self
            .current
            .iter()
            .map(|key| key.thumbprint().clone())
            .collect();
        // The newest first: a key that came back and gave way again is kept once.
        self.previous.retain(|(key, end)| {
            let is_new = !seen.contains(key.thumbprint());
            seen.push(key.thumbprint().clone());
            is_new && *end > now
        });
        self.previous.truncate(MOST);
    }

    fn key_set(&self) -> KeySet {
        let previous = self.previous.iter().map(|(key, _)| key);
        KeySet::nameless_keys(self.current.iter().chain(previous).cloned().collect())
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

    /// Which of the letters are trusted, the current one first.
    fn letters(keys: &KeySet) -> String {
        let letter = |trusted: &VerificationKey| {
            ('a'..='z')
                .find(|letter| key(*letter).thumbprint() == trusted.thumbprint())
                .unwrap()
        };
        keys.keys().iter().map(letter).collect()
    }

    /// Fetches at these seconds, and what is trusted then.
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
    fn contract_5_3_without_a_grace_the_last_fetched_key_alone_counts() {
        let previous = run(0, &[(0, 'a', "a"), (60, 'b', "b"), (120, 'a', "a")]);
        assert_eq!(previous.next_end(), None);
    }

    #[test]
    fn a_key_that_gave_way_counts_for_the_grace_and_no_longer() {
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
    fn the_end_comes_without_a_fetch_too_and_keeps_the_time_of_the_last() {
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
    fn there_are_never_more_than_four_and_none_beside_a_key_set() {
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
