//! The keys that are trusted at this moment, shared by every request without a lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwapOption, Guard};
use contract::keys::{KeyId, KeySet, VerificationKey};

/// Empty until the first fetch succeeded: without a key nothing is verified, and nothing stands in
/// for one.
#[derive(Debug, Default)]
pub(crate) struct CurrentKeys {
    state: ArcSwapOption<KeyState>,
}

/// One key set and how it came to be trusted.
#[derive(Debug)]
pub(crate) struct KeyState {
    keys: KeySet,
    key_id: KeyId,
    /// Moves with every change of the keys and tells apart what was verified under which.
    generation: u64,
    /// Of the last fetch that succeeded, whether or not it brought another key.
    fetched_at: Instant,
}

/// What installing a key changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    First,
    Unchanged,
    Replaced,
}

impl CurrentKeys {
    /// The present state; cheap, and valid for as long as the guard is held.
    pub(crate) fn load(&self) -> Guard<Option<Arc<KeyState>>> {
        self.state.load()
    }

    /// Trusts `key`, fetched at `now`, and no other from now on. Only the refresh calls it.
    pub(crate) fn install(&self, key: VerificationKey, now: Instant) -> Change {
        let former = self.state.load();
        let (change, former_generation) = match former.as_deref() {
            None => (Change::First, 0),
            Some(former) if former.key_id == *key.id() => (Change::Unchanged, former.generation),
            Some(former) => (Change::Replaced, former.generation),
        };
        let generation = match change {
            Change::Unchanged => former_generation,
            Change::First | Change::Replaced => former_generation + 1,
        };
        self.state.store(Some(Arc::new(KeyState {
            key_id: key.id().clone(),
            keys: KeySet::nameless(key),
            generation,
            fetched_at: now,
        })));
        change
    }
}

impl KeyState {
    pub(crate) fn keys(&self) -> &KeySet {
        &self.keys
    }

    pub(crate) fn key_id(&self) -> &KeyId {
        &self.key_id
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.fetched_at)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use contract::signing_type::SigningType;

    use super::*;

    fn key(letter: &str) -> VerificationKey {
        VerificationKey::parse(SigningType::Hmac, &letter.repeat(32)).unwrap()
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
        for (seconds, letter, change, generation) in [
            (0, "a", Change::First, 1),
            (60, "a", Change::Unchanged, 1),
            (120, "b", Change::Replaced, 2),
            (180, "a", Change::Replaced, 3),
        ] {
            assert_eq!(keys.install(key(letter), at(seconds)), change);
            let state = keys.load();
            let state = state.as_ref().unwrap();
            assert_eq!(state.generation(), generation);
            assert_eq!(state.key_id(), key(letter).id());
            assert_eq!(state.age(at(seconds + 5)), Duration::from_secs(5));
        }
    }
}
