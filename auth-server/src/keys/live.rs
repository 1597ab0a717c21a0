//! The keys in memory: what signs, what verifies, what is handed out, swapped as one.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::pair::SigningKeyPair;
use super::published::PublishedKeys;

/// The keys that count now; none until the store gave or took a pair.
#[derive(Debug, Default)]
pub(crate) struct CurrentKey(ArcSwapOption<PublishedKeys>);

impl CurrentKey {
    /// The pair that signs.
    pub(crate) fn load(&self) -> Option<Arc<SigningKeyPair>> {
        let keys = self.0.load();
        keys.as_ref().map(|keys| Arc::clone(keys.ring().current()))
    }

    /// All of them, with what is handed out.
    pub(crate) fn published(&self) -> Option<Arc<PublishedKeys>> {
        self.0.load_full()
    }

    /// Only the upkeep replaces the keys, and only by those that the store holds.
    pub(super) fn replace(&self, keys: PublishedKeys) {
        self.0.store(Some(Arc::new(keys)));
    }
}

#[cfg(test)]
impl CurrentKey {
    /// As after a look into a store that holds `pair`.
    pub(crate) fn holding(pair: SigningKeyPair) -> Self {
        Self::holding_ring(super::ring::KeyRing::of(Arc::new(pair)))
    }

    /// As after a look into a store that holds `ring`.
    pub(crate) fn holding_ring(ring: super::ring::KeyRing) -> Self {
        #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
        let signing_type = contract::keys::signing_type::SigningType::ALL
            .into_iter()
            .find(|of| of.algorithm() == ring.current().verification_key().algorithm())
            .unwrap();
        let current = Self::default();
        current.replace(PublishedKeys::new(signing_type, ring).unwrap());
        current
    }
}
