//! The life of a key.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use super::*;
use crate::keys::pair::tests::fresh;

const NOW: i64 = 1_000_000;
const BY_HAND: RotationPolicy = RotationPolicy {
    lead: 150,
    keep: 18_030,
    every: None,
};
const DAILY: RotationPolicy = RotationPolicy {
    every: Some(86_400),
    ..BY_HAND
};

fn ring() -> KeyRing {
    KeyRing::of(fresh())
}

fn ids(ring: &KeyRing) -> Vec<KeyId> {
    ring.verification_keys()
        .map(|key| key.id().clone())
        .collect()
}

/// Returns the ring as a server without a fresh key turns it; `None` if one is needed.
fn at(ring: &KeyRing, now: i64, policy: &RotationPolicy) -> Option<KeyRing> {
    ring.clone()
        .advance(now, policy)
        .on_schedule(now, policy, None)
}

#[test]
fn without_a_schedule_a_lone_pair_stays_for_ever() {
    let ring = ring();
    assert_eq!(at(&ring, i64::MAX, &BY_HAND), Some(ring.clone()));
    assert_eq!(ring.next_due(&BY_HAND), None);
}

#[test]
fn a_key_is_published_then_signs_then_retires_then_is_dropped() {
    let (old, new) = (fresh(), fresh());
    let ring = KeyRing::of(Arc::clone(&old)).publish(Arc::clone(&new), NOW, BY_HAND.lead);
    assert_eq!(ring.current().id(), old.id());
    assert_eq!(ids(&ring), [old.id().clone(), new.id().clone()]);

    let signs_from = NOW + 150;
    assert_eq!(ring.next_due(&BY_HAND), Some(signs_from));
    let before = at(&ring, signs_from - 1, &BY_HAND);
    assert_eq!(before.as_ref(), Some(&ring));

    let ring = ring.advance(signs_from, &BY_HAND);
    assert_eq!(ring.current().id(), new.id());
    assert_eq!(ring.current_since(), Some(signs_from));
    assert_eq!(ids(&ring), [new.id().clone(), old.id().clone()]);

    let until = signs_from + 18_030;
    assert_eq!(ring.next_due(&BY_HAND), Some(until));
    assert_eq!(ring.clone().advance(until - 1, &BY_HAND), ring);
    assert_eq!(ids(&ring.advance(until, &BY_HAND)), [new.id().clone()]);
}

#[test]
fn a_late_promotion_keeps_the_former_key_as_long() {
    let ring = ring()
        .publish(fresh(), NOW, 150)
        .advance(NOW + 9_000, &BY_HAND);
    assert_eq!(ring.retired()[0].until(), NOW + 9_000 + 18_030);
}

#[test]
fn a_schedule_counts_from_its_first_sight() {
    let started = at(&ring(), NOW, &DAILY);
    let ring = started.unwrap();
    assert_eq!(ring.current_since(), Some(NOW));
    let due = NOW + 86_400 - 150;
    assert_eq!(ring.next_due(&DAILY), Some(due));
    assert_eq!(at(&ring, due - 1, &DAILY), Some(ring.clone()));
    assert_eq!(at(&ring, due, &DAILY), None, "a fresh key is needed");

    let new = fresh();
    let ring = ring.on_schedule(due, &DAILY, Some(&new)).unwrap();
    assert_eq!(ring.next().unwrap().pair, new);
    assert_eq!(at(&ring, due, &DAILY), Some(ring.clone()));
    let ring = ring.advance(NOW + 86_400, &DAILY);
    assert_eq!(ring.current_since(), Some(NOW + 86_400));
    assert_eq!(ring.next_due(&DAILY), Some(NOW + 86_400 + 18_030));
}

#[test]
fn another_pair_in_the_store_starts_the_schedule_anew() {
    let mut ring = ring().start_schedule(NOW);
    ring.current = fresh();
    assert_eq!(ring.current_since(), None);
    let started = at(&ring, NOW + 9, &DAILY).unwrap();
    assert_eq!(started.current_since(), Some(NOW + 9));
}

#[test]
fn every_key_has_one_role() {
    let retired = fresh();
    let mut ring = ring().publish(fresh(), NOW, 150);
    ring.retire(&retired, NOW);
    ring.retire(&retired, NOW + 1);
    ring.retire(&Arc::clone(ring.current()), NOW);
    let roles: Vec<_> = ids(&ring)
        .iter()
        .map(|id| ring.role_of(id).unwrap())
        .collect();
    assert_eq!(roles, [Role::Current, Role::Next, Role::Retired]);
    assert_eq!(ring.role_of(fresh().id()), None);
}

#[test]
fn a_key_that_signs_again_is_listed_for_longer() {
    let former = fresh();
    let mut ring = ring();
    for (until, expected) in [
        (NOW + 100, NOW + 100),
        // Another server has learnt of the same promotion.
        (NOW + 130, NOW + 100),
        (NOW + 131, NOW + 131),
        (NOW, NOW + 131),
    ] {
        ring.retire(&former, until);
        let ends: Vec<_> = ring.retired().iter().map(RetiredKey::until).collect();
        assert_eq!(ends, [expected]);
    }
}
