//! The pair in memory: what signs, what verifies, what is handed out, swapped as one.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::key_pair::SigningKeyPair;

/// The current signing key pair; none until the store gave or took one.
#[derive(Debug, Default)]
pub(crate) struct CurrentKey(ArcSwapOption<SigningKeyPair>);

impl CurrentKey {
    pub(crate) fn load(&self) -> Option<Arc<SigningKeyPair>> {
        self.0.load_full()
    }

    /// Only the upkeep replaces the pair, and only by one that the store holds.
    pub(super) fn replace(&self, pair: SigningKeyPair) {
        self.0.store(Some(Arc::new(pair)));
    }
}

#[cfg(test)]
impl CurrentKey {
    /// As after a look into a store that holds `pair`.
    pub(crate) fn holding(pair: SigningKeyPair) -> Self {
        let current = Self::default();
        current.replace(pair);
        current
    }
}
