#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::audit::events::RevocationEventKind;
use crate::changed_by::tests::note;

const NOW: i64 = 1_800_000_000;

pub(crate) fn token(id: &str, user: &str, until: i64) -> Revocation {
    Revocation {
        revoked: Revoked::Token {
            id: id.to_owned(),
            user: Some(user.to_owned()),
        },
        until,
    }
}

pub(crate) fn user(id: &str, before: i64, until: i64) -> Revocation {
    Revocation {
        revoked: Revoked::User {
            id: id.to_owned(),
            before,
        },
        until,
    }
}

fn claims(id: &str, user: &str, issued_at: i64) -> Claims {
    Claims {
        token_id: Some(id.to_owned()),
        user_id: user.to_owned(),
        issued_at: Some(issued_at),
        ..Claims::default()
    }
}

fn with(revocations: &[Revocation]) -> Revocations {
    Revocations::default().with(revocations, NOW)
}

fn json(revocations: &Revocations) -> String {
    serde_json::to_string(revocations).unwrap()
}

#[test]
fn a_token_a_user_and_an_application_end_and_no_others() {
    let application = Revocation {
        revoked: Revoked::Application {
            id: "orders".to_owned(),
            before: NOW,
        },
        until: NOW + 10,
    };
    let revocations = with(&[
        token("a", "1", NOW + 10),
        user("2", NOW, NOW + 10),
        application,
    ]);
    let of_application = |issued_at| Claims {
        client_id: Some("orders".to_owned()),
        ..claims("x", "orders", issued_at)
    };
    for (claims, revoked) in [
        (claims("a", "1", NOW - 1), true),
        (claims("b", "1", NOW - 1), false),
        (claims("b", "2", NOW - 1), true),
        (claims("b", "2", NOW), false),
        (of_application(NOW - 1), true),
        (of_application(NOW), false),
    ] {
        assert_eq!(revocations.revokes(&claims), revoked, "{claims:?}");
    }
    assert_eq!(revocations.counts(), [1, 1, 1]);
}

#[test]
fn the_number_grows_with_each_change_and_by_the_clock() {
    let first = with(&[token("a", "1", NOW + 10)]);
    assert_eq!(first.seq, NOW.unsigned_abs());
    let again = first.with(&[token("a", "1", NOW + 10)], NOW);
    assert_eq!(again, first);
    let second = first.with(&[token("b", "1", NOW + 10)], NOW);
    assert_eq!(second.seq, first.seq + 1);
    let later = second.with(&[token("c", "1", NOW + 10)], NOW + 500);
    assert_eq!(later.seq, first.seq + 500);
}

#[test]
fn merging_loses_nothing_in_any_order_and_settles() {
    let one = with(&[token("a", "1", NOW + 99), user("2", NOW, NOW + 50)]);
    let other = with(&[token("b", "1", NOW + 99), user("2", NOW + 5, NOW + 20)]);
    let merged = one.merged(&other, NOW, None);
    let reverse = other.merged(&one, NOW, None);
    assert_eq!(merged, reverse);
    assert_eq!(merged.seq, one.seq + 1, "a mixture of equal numbers");
    assert!(merged.revokes(&claims("a", "1", 0)) && merged.revokes(&claims("b", "1", 0)));
    assert!(merged.revokes(&claims("x", "2", NOW + 4)));
    for side in [&one, &other, &merged] {
        assert_eq!(merged.merged(side, NOW, None), merged);
        assert_eq!(side.merged(&merged, NOW, None), merged);
    }
}

#[test]
fn a_lost_or_older_store_gets_its_revocations_back() {
    let older = with(&[token("a", "1", NOW + 99)]);
    let memory = older.with(&[user("2", NOW, NOW + 99)], NOW);
    for stored in [Revocations::default(), older] {
        assert_eq!(stored.merged(&memory, NOW, None), memory);
    }
}

#[test]
fn entries_go_together_and_only_when_they_are_over() {
    let revocations = with(&[
        token("a", "1", NOW + 10),
        user("2", NOW, NOW + 300),
        user("3", NOW, NOW + 9_000),
    ]);
    let merged = |now| revocations.merged(&revocations, now, None);
    for (now, counts) in [
        (NOW + 10, [1, 2, 0]),
        (NOW + 609, [1, 2, 0]),
        (NOW + 610, [0, 1, 0]),
        (NOW + 9_600, [0, 0, 0]),
    ] {
        assert_eq!(merged(now).counts(), counts, "{now}");
    }
    // A slow server does not bring back what others have forgotten.
    let forgotten = merged(NOW + 610);
    let merged = forgotten.merged(&revocations, NOW + 610, None);
    assert_eq!(merged, forgotten);
}

#[test]
fn entries_outlast_the_tokens_of_the_server_that_reads_them() {
    const KEEP: i64 = 86_400;
    let by_command = Revocation {
        revoked: Revoked::Token {
            id: "b".to_owned(),
            user: None,
        },
        until: NOW + 10,
    };
    let short = with(&[
        token("a", "1", NOW + 10),
        by_command,
        user("2", NOW, NOW + 10),
    ]);
    let later = |held: &Revocations| held.merged(&short, NOW + 20_000, Some(KEEP));
    let merged = Revocations::default().merged(&short, NOW, None);
    let merged = later(&merged);
    assert_eq!(
        merged.counts(),
        [1, 1, 0],
        "the end of the first token was known"
    );
    assert_eq!(later(&merged), merged);
    let over = |now| merged.merged(&merged, now, None).counts();
    assert_eq!(over(NOW + KEEP + 1_199), [1, 1, 0]);
    assert_eq!(over(NOW + KEEP + 1_200), [0, 0, 0]);
}

#[test]
fn too_many_tokens_of_a_user_become_a_time() {
    let many: Vec<_> = (0..41_500)
        .map(|number| {
            let owner = if number % 100 == 0 { "other" } else { "1" };
            token(&format!("token {number}"), owner, NOW + 99)
        })
        .collect();
    let revocations = with(&many);
    assert_eq!(revocations.counts(), [415, 1, 0]);
    assert!(revocations.revokes(&claims("not revoked", "1", NOW)));
    assert!(!revocations.revokes(&claims("later", "1", NOW + 1)));
    assert!(!revocations.revokes(&claims("not revoked", "other", NOW)));
    assert!(revocations.revokes(&claims("token 100", "other", NOW)));
    let few = with(&many[..40_000]);
    assert_eq!(few.counts(), [40_000, 0, 0]);
    assert!(json(&few).len() < 4 * 1024 * 1024);
}

#[test]
fn at_last_everyone_has_to_log_in_again() {
    let many: Vec<_> = (0..45_000)
        .map(|number| token(&format!("{number}"), &format!("user {number}"), NOW + 99))
        .chain([user("planned", NOW + 50, NOW + 500)])
        .collect();
    let revocations = with(&many);
    assert_eq!(revocations.counts(), [0, 0, 0]);
    assert!(revocations.revokes(&claims("any", "anybody", NOW + 49)));
    assert!(!revocations.revokes(&claims("any", "anybody", NOW + 50)));
    let kinds: Vec<_> = events::events(&Revocations::default(), &revocations, None)
        .into_iter()
        .map(|event| event.kind)
        .collect();
    assert_eq!(kinds, [RevocationEventKind::Everyone]);
}

#[test]
fn the_stored_form_is_read_back_with_members_of_a_newer_version() {
    let revocations = with(&[token("a", "1", NOW + 10), user("2", NOW, NOW + 9)]);
    let read: Revocations = serde_json::from_str(&json(&revocations)).unwrap();
    assert_eq!(read, revocations);
    let newer = json(&revocations).replacen('{', r#"{"sessions":{"x":1},"#, 1);
    let read: Revocations = serde_json::from_str(&newer).unwrap();
    assert!(json(&read).contains(r#""sessions":{"x":1}"#));
    assert!(Revocations::default().is_unused());
}

#[test]
fn new_entries_are_events_with_their_actor() {
    let before = with(&[token("a", "1", NOW + 10)]);
    let after = before.with(&[token("b", "1", NOW + 10), user("2", NOW, NOW + 9)], NOW);
    let by = note("ada@desk", NOW).of("2");
    let events = events::events(&before, &after, Some(&by));
    let logged: Vec<_> = events
        .iter()
        .map(|event| {
            let by = event.changed_by.as_ref().map(|by| by.by.as_str());
            (event.kind, event.id.as_str(), by)
        })
        .collect();
    assert_eq!(
        logged,
        [
            (RevocationEventKind::Token, "b", None),
            (RevocationEventKind::User, "2", Some("ada@desk")),
        ]
    );
    assert!(events::events(&after, &after, None).is_empty());
}
