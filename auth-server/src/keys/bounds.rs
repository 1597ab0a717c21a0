//! What a ring may come to at most, whoever wrote it.

use std::collections::BTreeSet;

use contract::keys::{KeyId, VerificationKey};

use super::ring::KeyRing;

/// Twice what a schedule may come to (`config::rotation`).
const MAX_RETIRED: usize = 64;
/// A sidecar reads 64 KiB of keys; a next key that is published afterwards has to fit too.
const MAX_SET_BYTES: usize = 60 * 1024;

impl KeyRing {
    /// With each key once, and with no more retired ones than a sidecar reads. Those whose time is over
    /// first stay: whoever fills a ring with keys of their own gives them a long time.
    pub(super) fn bounded(mut self) -> Self {
        let next = self.next().map(|next| &next.pair);
        let signing = std::iter::once(self.current()).chain(next);
        let mut seen: BTreeSet<KeyId> = signing.map(|pair| pair.id().clone()).collect();
        let retired = &mut self.rest.retired;
        retired.retain(|retired| seen.insert(retired.key.id().clone()));
        if retired.len() > MAX_RETIRED || self.set_bytes() > MAX_SET_BYTES {
            self.rest.retired.sort_by_key(|retired| retired.until);
            self.rest.retired.truncate(MAX_RETIRED);
        }
        while self.set_bytes() > MAX_SET_BYTES && self.rest.retired.pop().is_some() {}
        self
    }

    /// The length of the key set that is handed out, but for its frame.
    fn set_bytes(&self) -> usize {
        let keys = self.verification_keys().filter_map(VerificationKey::to_jwk);
        let texts = keys.filter_map(|key| serde_json::to_string(&key).ok());
        texts.map(|text| text.len() + 1).sum()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::sync::Arc;

    use contract::signing_type::SigningType;

    use super::*;
    use crate::keys::key_pair::tests::pair;
    use crate::keys::published::PublishedKeys;

    #[test]
    fn each_key_is_there_once_and_the_longest_lasting_go_first() {
        const TYPE: SigningType = SigningType::Ecdsa;
        let fresh = || Arc::new(pair(TYPE));
        let mut ring = KeyRing::of(fresh()).publish(fresh(), 0, 150);
        let genuine = fresh();
        for _ in 0..300 {
            ring.retire(&fresh(), 1 << 40);
        }
        ring.retire(&genuine, 9);
        let first = ring.rest.retired[0].clone();
        ring.rest.retired.push(first);
        let bounded = ring.clone().bounded();
        assert_eq!(bounded.retired().len(), MAX_RETIRED);
        assert!(bounded.is_listed(genuine.id()));
        assert_eq!(bounded.clone().bounded(), bounded);
        let published = PublishedKeys::new(TYPE, bounded).unwrap();
        assert!(published.jwk_set().unwrap().json.len() < 64 * 1024);
    }
}
