//! Bounds of a ring, from any writer.

use std::collections::BTreeSet;

use postern_token::keys::{KeyId, VerificationKey};

use super::{KeyRing, RetiredKey, Role};

/// Max number of retired keys: twice the maximum of a schedule (`config::rotation`).
const MAX_RETIRED: usize = 64;
/// Max length of the published set. A sidecar reads 64 KiB of keys; a next key published later must fit too.
const MAX_SET_BYTES: usize = 60 * 1024;

impl KeyRing {
    /// Removes duplicates, and retired keys beyond what a sidecar reads, latest end first: keys
    /// planted to last go before genuine ones.
    pub(in crate::keys) fn bounded(mut self) -> Self {
        let signing = self.listed().filter(|it| it.role != Role::Retired);
        // The signing keys count as seen, so that a retired copy of one is dropped.
        let mut seen: BTreeSet<KeyId> = signing.map(|it| it.key.id().clone()).collect();
        let retired = &mut self.metadata.retired;
        retired.retain(|retired| seen.insert(retired.key.id().clone()));
        if retired.len() > MAX_RETIRED || self.set_bytes() > MAX_SET_BYTES {
            self.metadata.retired.sort_by_key(RetiredKey::until);
            self.metadata.retired.truncate(MAX_RETIRED);
        }
        while self.set_bytes() > MAX_SET_BYTES && self.metadata.retired.pop().is_some() {}
        self
    }

    /// Returns the length of the published key set, without its frame.
    fn set_bytes(&self) -> usize {
        self.verification_keys()
            .filter_map(VerificationKey::to_jwk)
            .filter_map(|key| serde_json::to_string(&key).ok())
            .map(|text| text.len() + 1)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use postern_token::keys::KeySet;
    use postern_token::keys::signing_type::SigningType;
    use serde_json::json;

    use super::*;
    use crate::keys::pair::tests::fresh;

    #[test]
    fn each_key_is_there_once_and_the_longest_lasting_go_first() {
        let mut ring = KeyRing::of(fresh()).publish(fresh(), 0, 150);
        let genuine = fresh();
        for _ in 0..100 {
            ring.retire(&fresh(), 1 << 40);
        }
        ring.retire(&genuine, 9);
        let first = ring.metadata.retired[0].clone();
        ring.metadata.retired.push(first);
        let mut bounded = ring.clone().bounded();
        assert_eq!(bounded.retired().len(), MAX_RETIRED);
        assert!(bounded.is_listed(genuine.id()));
        assert_eq!(bounded.clone().bounded(), bounded);

        let modulus = |n: usize| format!("w{n}{}Q", "A".repeat(1362));
        let large = |n| json!({"kty": "RSA", "n": modulus(n), "e": "AQAB"});
        let large = json!({"keys": (10..74).map(large).collect::<Vec<_>>()}).to_string();
        let large = KeySet::from_jwks(large.as_bytes(), &[SigningType::Rsa.algorithm()]).unwrap();
        for (retired, key) in bounded.metadata.retired.iter_mut().zip(large.keys()) {
            retired.key = key.clone();
        }
        let bytes = bounded.bounded().set_bytes();
        assert!((56 * 1024..=MAX_SET_BYTES).contains(&bytes), "{bytes}");
    }
}
