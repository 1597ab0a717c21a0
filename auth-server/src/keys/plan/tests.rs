//! Combinations of store and memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use zeroize::Zeroizing;

use super::*;
use crate::keys::StoredKeyPair;
use crate::keys::pair::KeyPairError;
use crate::keys::pair::tests::{fresh, pair};

const TYPE: SigningType = SigningType::Ecdsa;
const NOW: i64 = 1_000_000;
const POLICY: RotationPolicy = RotationPolicy {
    lead: 150,
    keep: 18_030,
    every: None,
};

fn ring() -> KeyRing {
    KeyRing::of(fresh())
}

fn stored(ring: &KeyRing) -> StoredKeys {
    ring.to_stored().unwrap()
}

fn at(now: i64, memory: Option<&KeyRing>) -> Planner<'_> {
    Planner {
        signing_type: TYPE,
        policy: &POLICY,
        memory,
        now,
    }
}

fn plan(memory: Option<&KeyRing>, stored: &StoredKeys) -> Plan {
    at(NOW, memory).plan(stored, None).unwrap()
}

fn written(memory: Option<&KeyRing>, stored: &StoredKeys) -> KeyRing {
    match plan(memory, stored) {
        Plan::Write(ring) => ring,
        other => unreachable!("{other:?}"),
    }
}

fn retired_ids(ring: &KeyRing) -> Vec<&KeyId> {
    ring.retired().iter().map(|key| key.key.id()).collect()
}

#[test]
fn a_pair_instead_of_a_lost_store_keeps_the_rotation_going() {
    let mine = ring().publish(fresh(), NOW, 150);
    let merged = written(Some(&mine), &stored(&ring()));
    assert_eq!(merged.next(), mine.next());
    assert_eq!(retired_ids(&merged), [mine.current().id()]);
}

#[test]
fn a_next_key_that_the_store_lacks_gets_its_lead_again() {
    let theirs = ring();
    let announced = |began| theirs.clone().publish(fresh(), began, 150);
    for (began, signs_from) in [
        (NOW - 9_000, NOW + POLICY.lead),
        (NOW, NOW + POLICY.lead),
        (NOW + 60, NOW + 60 + 150),
    ] {
        let mine = announced(began).in_next_generation(NOW);
        let merged = written(Some(&mine), &stored(&theirs));
        let next = merged.next().map(|next| next.signs_from);
        assert_eq!(next, Some(signs_from), "{began}");
    }
}

#[test]
fn what_is_due_is_done_and_at_once_where_no_server_ran() {
    let announced = ring().publish(fresh(), NOW - 9_000, 150);
    let promoted = written(None, &stored(&announced));
    assert_eq!(promoted.current(), &announced.next().unwrap().pair);
    assert_eq!(retired_ids(&promoted), [announced.current().id()]);
}

#[test]
fn a_schedule_starts_then_requests_a_key_and_publishes_it() {
    let policy = RotationPolicy {
        every: Some(1_000),
        ..POLICY
    };
    let later = NOW + 1_000 - 150;
    let at = |now| Planner {
        policy: &policy,
        ..at(now, None)
    };
    let alone = ring();
    let started = alone.clone().start_schedule(NOW);
    assert_eq!(
        at(NOW).plan(&stored(&alone), None).unwrap(),
        Plan::Write(started.clone())
    );
    assert_eq!(
        at(later).plan(&stored(&started), None).unwrap(),
        Plan::Generate
    );
    let new = fresh();
    let published = at(later).plan(&stored(&started), Some(&new)).unwrap();
    assert_eq!(published, Plan::Write(started.publish(new, later, 150)));
}

#[test]
fn a_replaced_shared_secret_is_kept_nowhere() {
    let hmac = |memory| Planner {
        signing_type: SigningType::Hmac,
        ..at(NOW, memory)
    };
    let ring = || KeyRing::of(Arc::new(pair(SigningType::Hmac)));
    let (mine, theirs) = (ring(), ring());
    let plan = hmac(Some(&mine)).plan(&stored(&theirs), None).unwrap();
    assert_eq!(plan, Plan::Keep(theirs));
}

#[test]
fn members_of_a_newer_version_survive_a_write_by_this_one() {
    let mut mine = ring().publish(fresh(), NOW, 150).start_schedule(NOW);
    mine.retire(&fresh(), NOW + 9);
    let mut stored = stored(&mine);
    let mut json: serde_json::Value = serde_json::from_str(&stored.ring.unwrap()).unwrap();
    let news = serde_json::json!({"a": [1, null]});
    for path in ["", "/current", "/next", "/retired/0"] {
        json.pointer_mut(path).unwrap()["fromTheFuture"] = news.clone();
    }
    stored.ring = Some(Zeroizing::new(json.to_string()));
    let held = KeyRing::parse(TYPE, &stored).unwrap().unwrap();
    assert_eq!(plan(Some(&held), &stored), Plan::Keep(held.clone()));
    let other = fresh();
    let written = held.revoke(other.id(), None, NOW).unwrap();
    let written = written.to_stored().unwrap().ring.unwrap();
    let written: serde_json::Value = serde_json::from_str(&written).unwrap();
    for path in ["", "/current", "/next", "/retired/0"] {
        assert_eq!(written.pointer(path).unwrap()["fromTheFuture"], news);
    }
    assert_eq!(written["version"], 1);
}

#[test]
fn unusable_stored_keys_are_an_error_whatever_memory_holds() {
    let (mine, theirs) = (ring(), ring());
    let text = |text: &str| Some(Zeroizing::new(text.to_owned()));
    let mixed = StoredKeyPair {
        private: mine.current().stored().private.clone(),
        public: theirs.current().stored().public.clone(),
    };
    let with_ring = |ring| StoredKeys {
        ring,
        ..stored(&mine)
    };
    let cases = [
        (
            StoredKeys {
                pair: Some(mixed),
                ..StoredKeys::default()
            },
            KeyRingError::Pair(KeyPairError::Mismatch),
        ),
        (
            with_ring(text("{")),
            KeyRingError::MalformedRing { line: 1, column: 1 },
        ),
        (
            with_ring(text(r#"{"retired":[],"version":2}"#)),
            KeyRingError::NewerRing(2),
        ),
        (
            with_ring(text(r#"{"next":{"private":"","public":"","signsFrom":1}}"#)),
            KeyRingError::Next(KeyPairError::PrivateHalf(TYPE)),
        ),
    ];
    for (stored, expected) in &cases {
        for memory in [None, Some(&mine)] {
            assert_eq!(&at(NOW, memory).plan(stored, None).unwrap_err(), expected);
        }
    }
}
