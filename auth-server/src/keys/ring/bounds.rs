//! Bounds of a ring, from any writer.

use std::collections::BTreeSet;

use wire::keys::{KeyId, VerificationKey};

use super::KeyRing;
use super::rotation::RotationPolicy;

/// Seconds between right clocks at most; times further ahead were written by a wrong one.
pub(crate) const TOLERANCE: i64 = 300;
/// Twice the maximum of a schedule (`config::rotation`).
const MAX_RETIRED: usize = 64;
/// A sidecar reads 64 KiB of keys; a next key published later must fit too.
const MAX_SET_BYTES: usize = 60 * 1024;

impl KeyRing {
    /// Removes duplicates, and retired keys beyond what a sidecar reads, latest end first: keys
    /// planted to last go before genuine ones.
    pub(in crate::keys) fn bounded(mut self) -> Self {
        let next = self.next().map(|next| &next.pair);
        let signing = std::iter::once(self.current()).chain(next);
        let mut seen: BTreeSet<KeyId> = signing.map(|pair| pair.id().clone()).collect();
        let retired = &mut self.metadata.retired;
        retired.retain(|retired| seen.insert(retired.key.id().clone()));
        if retired.len() > MAX_RETIRED || self.set_bytes() > MAX_SET_BYTES {
            self.metadata.retired.sort_by_key(|retired| retired.until);
            self.metadata.retired.truncate(MAX_RETIRED);
        }
        while self.set_bytes() > MAX_SET_BYTES && self.metadata.retired.pop().is_some() {}
        self
    }

    /// Corrects times that no right clock can have written: they would trust a key for years or
    /// stall a schedule.
    pub(in crate::keys) fn with_corrected_times(
        mut self,
        now: i64,
        policy: &RotationPolicy,
    ) -> Self {
        let correct = |time: &mut i64, latest: i64| {
            if *time > latest.saturating_add(TOLERANCE) {
                *time = latest;
            }
        };
        if let Some(current) = &mut self.metadata.since {
            correct(&mut current.since, now);
        }
        for retired in &mut self.metadata.retired {
            correct(&mut retired.until, now.saturating_add(policy.keep));
        }
        let is_past_its_turn = policy
            .every
            .is_some_and(|every| self.next_is_far_off(now, every.max(policy.lead)));
        if is_past_its_turn {
            return self.bring_forward(now, policy.lead);
        }
        self
    }

    /// Returns true if the next key signs later than `lead` from now.
    pub(crate) fn next_is_far_off(&self, now: i64, lead: i64) -> bool {
        let latest = now.saturating_add(lead).saturating_add(TOLERANCE);
        self.next().is_some_and(|next| next.signs_from > latest)
    }

    /// Returns the length of the published key set, without its frame.
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

    use wire::keys::signing_type::SigningType;

    use super::*;
    use crate::keys::pair::tests::pair;
    use crate::keys::published::PublishedKeys;

    #[test]
    fn times_that_no_right_clock_wrote_are_corrected() {
        const NOW: i64 = 1_000_000;
        const FAR: i64 = 1 << 40;
        let fresh = || Arc::new(pair(SigningType::Ecdsa));
        let policy = |every| RotationPolicy {
            lead: 150,
            keep: 1_000,
            every,
        };
        for (since, until, signs_from, every, expected) in [
            (
                NOW,
                NOW + 1_000,
                NOW + 150,
                None,
                (NOW, NOW + 1_000, NOW + 150),
            ),
            (
                NOW + 300,
                NOW + 1_300,
                NOW + 450,
                None,
                (NOW + 300, NOW + 1_300, NOW + 450),
            ),
            (1, 1, 1, Some(500), (1, 1, 1)),
            (FAR, FAR, FAR, None, (NOW, NOW + 1_000, FAR)),
            (FAR, FAR, FAR, Some(500), (NOW, NOW + 1_000, NOW + 150)),
            (
                i64::MAX,
                i64::MAX,
                i64::MAX,
                Some(500),
                (NOW, NOW + 1_000, NOW + 150),
            ),
            (NOW, NOW, NOW + 800, Some(500), (NOW, NOW, NOW + 800)),
        ] {
            let ring = KeyRing::of(fresh()).publish(fresh(), signs_from, 0);
            let mut ring = ring.start_schedule(since);
            ring.retire(&fresh(), until);
            let ring = ring.with_corrected_times(NOW, &policy(every));
            let next = ring.next().unwrap().signs_from;
            let times = (ring.current_since().unwrap(), ring.retired()[0].until, next);
            assert_eq!(times, expected);
        }
    }

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
        let first = ring.metadata.retired[0].clone();
        ring.metadata.retired.push(first);
        let bounded = ring.clone().bounded();
        assert_eq!(bounded.retired().len(), MAX_RETIRED);
        assert!(bounded.is_listed(genuine.id()));
        assert_eq!(bounded.clone().bounded(), bounded);
        let published = PublishedKeys::new(TYPE, bounded).unwrap();
        assert!(published.jwk_set().unwrap().json.len() < 64 * 1024);
    }
}
