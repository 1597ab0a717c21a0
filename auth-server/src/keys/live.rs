//! The keys in memory, swapped as a whole.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::pair::SigningKeyPair;
use super::published::PublishedKeys;

/// The keys in use; empty until a pair was read from the store or accepted by it.
#[derive(Debug, Default)]
pub(crate) struct LiveKeys(ArcSwapOption<PublishedKeys>);

impl LiveKeys {
    pub(crate) fn load(&self) -> Option<Arc<SigningKeyPair>> {
        let keys = self.0.load();
        keys.as_ref().map(|keys| Arc::clone(keys.ring.current()))
    }

    /// Returns all keys, in their published form.
    pub(crate) fn published(&self) -> Option<Arc<PublishedKeys>> {
        self.0.load_full()
    }

    /// Replaces the keys. Only `synchronization` calls this, and only with keys that the store holds.
    pub(crate) fn replace(&self, keys: PublishedKeys) {
        self.0.store(Some(Arc::new(keys)));
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use wire::keys::signing_type::SigningType;

    use super::super::ring::KeyRing;
    use super::*;

    impl LiveKeys {
        /// Returns the keys as loaded from a store that holds `pair`.
        pub(crate) fn holding(pair: SigningKeyPair) -> Self {
            Self::holding_ring(KeyRing::of(Arc::new(pair)))
        }

        /// Returns the keys as loaded from a store that holds `ring`.
        pub(crate) fn holding_ring(ring: KeyRing) -> Self {
            let signing_type = SigningType::ALL
                .into_iter()
                .find(|of| of.algorithm() == ring.current().verification_key().algorithm())
                .unwrap();
            let current = Self::default();
            current.replace(PublishedKeys::new(signing_type, ring).unwrap());
            current
        }
    }
}
