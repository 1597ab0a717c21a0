//! Combinations of store and memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use zeroize::Zeroizing;

use super::*;
use crate::changed_by::tests::note;
use crate::keys::pair::KeyPairError;
use crate::keys::pair::tests::pair;
use crate::keys::ring::with_revocations;
use crate::keys::{StoredKeyPair, StoredRing};

const TYPE: SigningType = SigningType::Ecdsa;
const NOW: i64 = 1_000_000;
const POLICY: RotationPolicy = RotationPolicy {
    lead: 150,
    keep: 18_030,
    every: None,
};

fn fresh() -> Arc<SigningKeyPair> {
    Arc::new(pair(TYPE))
}

fn ring() -> KeyRing {
    KeyRing::of(fresh())
}

fn stored(ring: &KeyRing) -> StoredKeys {
    ring.to_stored().unwrap()
}

fn at(now: i64, memory: Option<&KeyRing>) -> Reconciliation<'_> {
    Reconciliation {
        signing_type: TYPE,
        policy: &POLICY,
        memory,
        time: Time::from(now),
        is_settled: false,
        over: None,
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
fn contract_1_an_empty_store_gets_a_pair_a_full_one_is_loaded() {
    let nothing = StoredKeys::default();
    assert_eq!(plan(None, &nothing), Plan::Generate);
    let (new, theirs) = (fresh(), ring());
    let filled = at(NOW, None).plan(&nothing, Some(&new)).unwrap();
    assert_eq!(filled, Plan::Write(KeyRing::of(new)));
    assert_eq!(plan(None, &stored(&theirs)), Plan::Keep(theirs));
}

#[test]
fn a_pair_without_a_history_is_written_without_a_ring() {
    assert_eq!(stored(&ring()).ring, None);
}

#[test]
fn keys_that_were_lost_are_put_back_whole() {
    let mut mine = ring().publish(fresh(), NOW, 150);
    mine.retire(&fresh(), NOW + 9);
    assert_eq!(plan(Some(&mine), &stored(&mine)), Plan::Keep(mine.clone()));

    let whole = stored(&mine);
    let without_ring = StoredKeys {
        ring: None,
        ..whole.clone()
    };
    let without_pair = StoredKeys {
        pair: None,
        ..whole
    };
    for rest in [StoredKeys::default(), without_ring, without_pair] {
        assert_eq!(plan(Some(&mine), &rest), Plan::Write(mine.clone()));
    }
}

#[test]
fn another_pair_is_adopted_and_the_own_one_retired() {
    let (mine, theirs) = (ring(), ring());
    let merged = written(Some(&mine), &stored(&theirs));
    assert_eq!(merged.current().id(), theirs.current().id());
    assert_eq!(retired_ids(&merged), [mine.current().id()]);
    assert_eq!(merged.retired()[0].until, NOW + POLICY.keep);
    assert_eq!(plan(Some(&mine), &stored(&merged)), Plan::Keep(merged));
}

#[test]
fn a_pair_instead_of_a_lost_store_keeps_the_rotation_going() {
    let mine = ring().publish(fresh(), NOW, 150);
    let merged = written(Some(&mine), &stored(&ring()));
    assert_eq!(merged.next(), mine.next());
    assert_eq!(retired_ids(&merged), [mine.current().id()]);
}

#[test]
fn a_promotion_that_the_store_did_not_see_is_made_up_for() {
    let announced = ring().publish(fresh(), NOW - 150, 150);
    let ahead = announced.clone().advance(NOW, &POLICY);
    assert_eq!(plan(Some(&ahead), &stored(&announced)), Plan::Write(ahead));
}

#[test]
fn what_is_due_is_done_and_at_once_where_no_server_ran() {
    let announced = ring().publish(fresh(), NOW - 9_000, 150);
    let promoted = written(None, &stored(&announced));
    assert_eq!(promoted.current(), &announced.next().unwrap().pair);
    assert_eq!(retired_ids(&promoted), [announced.current().id()]);
}

#[test]
fn a_revoked_key_is_not_brought_back_by_who_still_has_it() {
    let mut mine = ring();
    let retired = fresh();
    mine.retire(&retired, NOW + 9);
    let revoked = mine.clone().revoke(retired.id(), None, NOW).unwrap();
    assert_eq!(plan(Some(&mine), &stored(&revoked)), Plan::Keep(revoked));

    let replaced = mine
        .clone()
        .revoke(mine.current().id(), Some(&fresh()), NOW)
        .unwrap();
    assert_eq!(
        plan(Some(&mine), &stored(&replaced)),
        Plan::Keep(replaced.clone())
    );
    // Nor by a crash or a loss halfway.
    let without_pair = StoredKeys {
        pair: None,
        ..stored(&replaced)
    };
    assert_eq!(plan(Some(&mine), &without_pair), Plan::Generate);
}

#[test]
fn a_stored_pair_whose_key_was_revoked_counts_as_no_pair() {
    let before = ring();
    let id = before.current().id().clone();
    let new = fresh();
    let after = before.clone().revoke(&id, Some(&new), NOW).unwrap();
    let older = [
        stored(&before),
        stored(&before.clone().publish(fresh(), NOW, 150)),
    ];
    for older in &older {
        let written = written(Some(&after), older);
        assert_eq!(written.current(), &new);
        assert!(written.revoked().contains(&id) && !written.is_listed(&id));
    }
    // A server that learns of it from the ring alone, or has the same key itself.
    let mixed = StoredKeys {
        pair: stored(&before).pair,
        ..stored(&after)
    };
    for memory in [None, Some(&before)] {
        assert_eq!(plan(memory, &mixed), Plan::Generate);
        let replaced = at(NOW, memory).plan(&mixed, Some(&new)).unwrap();
        assert_eq!(replaced, Plan::Write(after.clone()));
    }
}

#[test]
fn revoked_keys_are_added_beside_an_unusable_pair() {
    let mine = ring().revoke(fresh().id(), None, NOW).unwrap();
    let foreign = |ring: Option<&str>| StoredKeys {
        pair: Some(StoredKeyPair {
            private: Zeroizing::new("not ours".to_owned()),
            public: Zeroizing::new("not ours".to_owned()),
        }),
        ring: ring.map(|text| StoredRing(Zeroizing::new(text.to_owned()))),
    };
    for ring in [
        None,
        Some("{}"),
        Some(r#"{"next":{"private":"","public":"","signsFrom":1}}"#),
    ] {
        let stored = foreign(ring);
        let carried = with_revocations(&stored, &mine, NOW).unwrap();
        assert_eq!(carried.pair, stored.pair);
        assert_eq!(with_revocations(&carried, &mine, NOW), None);
    }
    assert_eq!(with_revocations(&foreign(Some("{")), &mine, NOW), None);
    assert_eq!(with_revocations(&foreign(None), &ring(), NOW), None);
}

#[test]
fn a_backup_from_before_a_rotation_goes_on_without_losing_a_key() {
    let before = ring();
    let after = before
        .clone()
        .publish(fresh(), NOW - 150, 150)
        .advance(NOW, &POLICY);
    let merged = written(Some(&after), &stored(&before));
    assert_eq!(merged.current(), before.current());
    assert_eq!(retired_ids(&merged), [after.current().id()]);
}

#[test]
fn a_schedule_starts_then_requests_a_key_and_publishes_it() {
    let policy = RotationPolicy {
        every: Some(1_000),
        ..POLICY
    };
    let later = NOW + 1_000 - 150;
    let at = |now| Reconciliation {
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
    let hmac = |memory| Reconciliation {
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
    let mut json: serde_json::Value = serde_json::from_str(&stored.ring.unwrap().0).unwrap();
    let news = serde_json::json!({"a": [1, null]});
    for path in ["", "/current", "/next", "/retired/0"] {
        json.pointer_mut(path).unwrap()["fromTheFuture"] = news.clone();
    }
    let text = Zeroizing::new(json.to_string());
    stored.ring = Some(StoredRing(text));
    let held = KeyRing::parse(TYPE, &stored).unwrap().unwrap();
    assert_eq!(plan(Some(&mine), &stored), Plan::Keep(held.clone()));
    let other = fresh();
    let written = held.revoke(other.id(), None, NOW).unwrap();
    let written = written.to_stored().unwrap().ring.unwrap();
    let written: serde_json::Value = serde_json::from_str(&written.0).unwrap();
    for path in ["", "/current", "/next", "/retired/0"] {
        assert_eq!(written.pointer(path).unwrap()["fromTheFuture"], news);
    }
    assert_eq!(written["version"], 1);
}

#[test]
fn the_last_change_stays_with_the_ring() {
    let next = fresh();
    let mine = ring().publish(Arc::clone(&next), NOW, 150);
    let mine = mine.with_change(next.id(), &note("ada@desk", NOW));
    let put_back = written(Some(&mine), &StoredKeys::default());
    assert_eq!(put_back.changed_by(), mine.changed_by());
    // Another server wrote a ring without it.
    let mut without = put_back.clone();
    without.metadata.changed_by = None;
    assert_eq!(written(Some(&mine), &stored(&without)), put_back);
    let revoked = put_back.clone().revoke(next.id(), None, NOW).unwrap();
    let revoked = revoked.with_change(next.id(), &note("eve@desk", NOW + 10));
    // An older ring is back: the later change counts.
    let merged = written(Some(&revoked), &stored(&put_back));
    assert_eq!(merged.changed_by(), revoked.changed_by());
    let unusable = StoredKeys {
        ring: Some(StoredRing(Zeroizing::new(
            r#"{"next":{"private":"","public":"","signsFrom":1}}"#.to_owned(),
        ))),
        ..stored(&put_back)
    };
    let carried = with_revocations(&unusable, &revoked, NOW).unwrap();
    let json: serde_json::Value = serde_json::from_str(&carried.ring.as_ref().unwrap().0).unwrap();
    assert_eq!(json["changedBy"]["by"], "eve@desk");
    assert_eq!(with_revocations(&carried, &revoked, NOW), None);
}

#[test]
fn a_note_that_cannot_be_read_stops_no_ring() {
    let mine = ring().start_schedule(NOW);
    let long = "x".repeat(4_096);
    for (note, is_readable) in [
        (serde_json::json!({"by": "ada@desk", "reason": null}), true),
        (serde_json::json!({"by": "ada@desk", "news": 1}), true),
        (serde_json::json!({"by": "ada@desk", "reason": long}), false),
        (serde_json::json!({"by": 1}), false),
        (serde_json::json!("ada@desk"), false),
        (serde_json::json!([1]), false),
        (serde_json::Value::Null, false),
    ] {
        let mut stored = stored(&mine);
        let mut json: serde_json::Value = serde_json::from_str(&stored.ring.unwrap().0).unwrap();
        json["changedBy"] = note.clone();
        stored.ring = Some(StoredRing(Zeroizing::new(json.to_string())));
        let held = KeyRing::parse(TYPE, &stored).unwrap().unwrap();
        assert_eq!(held.changed_by().is_some(), is_readable, "{note}");
        assert_eq!(
            plan(Some(&mine), &stored),
            Plan::Keep(held.clone()),
            "{note}"
        );
        let written = held.to_stored().unwrap().ring.unwrap().0;
        assert_eq!(written.contains("news"), note.to_string().contains("news"));
    }
}

#[test]
fn times_are_corrected_only_where_two_clocks_agree() {
    let mut theirs = ring();
    theirs.retire(&fresh(), 1 << 40);
    let healed = written(None, &stored(&theirs));
    assert_eq!(healed.retired()[0].until, NOW + POLICY.keep);
    let uncertain = Reconciliation {
        time: contradicted(NOW, NOW + 301),
        ..at(NOW, None)
    };
    let others = ring();
    for (memory, is_settled) in [(None, true), (Some(&others), true), (Some(&theirs), false)] {
        let at = Reconciliation {
            memory,
            is_settled,
            ..uncertain
        };
        let (Plan::Keep(ring) | Plan::Write(ring)) = at.plan(&stored(&theirs), None).unwrap()
        else {
            unreachable!("a pair is there")
        };
        assert_eq!(ring.retired()[0].until, 1 << 40);
    }
    let settled = Reconciliation {
        memory: Some(&theirs),
        is_settled: true,
        ..uncertain
    };
    let Ok(Plan::Write(healed)) = settled.plan(&stored(&theirs), None) else {
        unreachable!("a time to correct")
    };
    assert_eq!(healed.retired()[0].until, NOW + 301 + POLICY.keep);
}

fn contradicted(earliest: i64, latest: i64) -> Time {
    Time {
        earliest,
        latest,
        is_certain: false,
    }
}

#[test]
fn where_clocks_differ_the_earlier_decides_what_is_due() {
    const LATER: i64 = NOW + 86_400;
    let policy = RotationPolicy {
        every: Some(1_000),
        ..POLICY
    };
    let at = |earliest, memory| Reconciliation {
        policy: &policy,
        time: contradicted(earliest, LATER),
        ..at(NOW, memory)
    };
    let mut announced = ring().start_schedule(NOW).publish(fresh(), NOW, 150);
    announced.retire(&fresh(), NOW + 999);
    for memory in [None, Some(&announced)] {
        let premature = at(NOW + 149, memory).plan(&stored(&announced), None);
        assert_eq!(premature.unwrap(), Plan::Keep(announced.clone()));
    }
    let promoted = announced
        .clone()
        .advance(contradicted(NOW + 150, LATER), &policy);
    assert_eq!(promoted.current_since(), Some(NOW + 150));
    let until: Vec<_> = promoted.retired().iter().map(|key| key.until).collect();
    assert_eq!(until, [NOW + 999, LATER + POLICY.keep]);
    // A key retired in memory is kept too, and its replacement keeps its lead.
    let alone = stored(&ring().start_schedule(NOW));
    let new = fresh();
    let plan = at(NOW + 998, Some(&promoted)).plan(&alone, Some(&new));
    let Ok(Plan::Write(merged)) = plan else {
        unreachable!("{plan:?}")
    };
    assert_eq!(merged.retired().len(), 3);
    assert_eq!(merged.next().unwrap().signs_from, LATER + POLICY.lead);
}

#[test]
fn unusable_stored_keys_are_an_error_whatever_memory_holds() {
    let (mine, theirs) = (ring(), ring());
    let text = |text: &str| Some(StoredRing(Zeroizing::new(text.to_owned())));
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
                ring: None,
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
