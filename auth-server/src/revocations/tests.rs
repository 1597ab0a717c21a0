//! The log on each kind of store, also where that is an older copy, and the list that follows from it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod bound;

use std::sync::Arc;

use bytes::Bytes;
use postern_process::clock::unix_now;
use postern_token::claims::Claims;
use postern_token::keys::signing_type::SigningType;
use postern_token::revocations::statement::Ended;
use postern_token::revocations::{RevocationDigest, RevocationList, Revoked, TokenDigests};

use super::entry::{Fact, StatementDigests};
use super::log::RevocationLog;
use super::state::State;
use super::state::bound::{Owner, Surplus};
use super::*;
use crate::keys::pair::tests::pair;
use crate::keys::published::tests::holding;
use crate::store::conformance::for_every_store;
use crate::store::conformance::installations::Installation;
use crate::store::conformance::unsteady::{Failure, Unsteady};
use crate::store::open_store::OpenStore;
use crate::store::{Change, LogEntry, NewEntry, Outcome, Store, StoreError};
use crate::telemetry::metrics::Metrics;
use crate::tokens::revocation_list::RevocationListSigner;

/// A multiple of the time after which lines are removed together.
const NOW: i64 = 1_800_000_000;
const KEEP: i64 = 1_000;

pub(crate) fn log_of(store: OpenStore) -> Arc<RevocationLog> {
    Arc::new(RevocationLog::new(store, Metrics::default(), KEEP))
}

fn log_in(store: Arc<dyn Store>) -> Arc<RevocationLog> {
    log_of(OpenStore::unencrypted(store))
}

pub(crate) fn token(id: &str, user: &str, ends: i64) -> Revocation {
    let user = Some(user.to_owned());
    Revocation::for_token(id.to_owned(), user, unix_now()).until(ends, ends)
}

fn claims(id: &str, user: &str, issued_at: i64) -> Claims {
    Claims {
        token_id: Some(id.to_owned()),
        user_id: user.to_owned(),
        issued_at: Some(issued_at),
        ..Claims::default()
    }
}

fn far() -> i64 {
    unix_now() + 10_000
}

async fn count(store: &dyn Store) -> usize {
    store.since(0).await.unwrap().len()
}

fn revokes(log: &RevocationLog, id: &str) -> bool {
    log.revokes(&claims(id, "1", 0))
}

async fn revoke(log: &RevocationLog, id: &str, user: &str) {
    log.note([token(id, user, far())]);
    log.flush().await.unwrap();
}

fn at(now: i64, revocation: &Revocation) -> Fact {
    Fact {
        at: now,
        ..revocation.fact
    }
}

/// A state with these revocations, in this order.
fn state(revocations: &[Revocation]) -> State {
    let mut state = State::default();
    add(&mut state, revocations, NOW);
    state
}

fn add(state: &mut State, revocations: &[Revocation], now: i64) {
    let new = revocations.iter().zip(state.above() + 1..).map(|(it, id)| {
        let Ok(Change::Append(new)) = at(now, it).append(it.ends, 0) else {
            unreachable!("an entry")
        };
        LogEntry {
            id,
            value: new.value,
            ends: new.ends,
        }
    });
    let read: Vec<_> = state.last.clone().into_iter().chain(new).collect();
    state.extend(&read, now, KEEP);
}

fn text(parts: Vec<Bytes>) -> String {
    String::from_utf8(parts.concat()).unwrap()
}

fn lines(state: &State) -> usize {
    text(state.list.after(None)).lines().count()
}

for_every_store!(nothing_is_removed_from_another_history);

async fn nothing_is_removed_from_another_history(installation: &dyn Installation) {
    let one = log_in(installation.open());
    for id in ["a", "b"] {
        revoke(&one, id, "1").await;
    }
    let last = one.published().last.clone().unwrap();
    let surplus = Surplus {
        owner: Owner::User(RevocationDigest::for_user("1")),
        ids: vec![last.id - 1, last.id],
        lines: 0,
        ends: far(),
        latest: 0,
        issuer: None,
        lifetime: None,
    };
    installation.clear().await;
    let other = log_in(installation.open());
    for id in ["c", "d"] {
        revoke(&other, id, "2").await;
    }
    let outcome = one.collapse(&[surplus], &last, unix_now()).await;
    assert_eq!(outcome.unwrap(), Outcome::Conflict);
    let third = log_in(installation.open());
    third.poll().await.unwrap();
    let of_other = |id: &&str| third.revokes(&claims(id, "2", 0));
    assert!(["c", "d"].iter().all(of_other));
}

#[tokio::test]
async fn a_logout_does_not_wait_for_a_reading_before_it() {
    let store = Unsteady::new();
    let log = log_in(Arc::new(Arc::clone(&store)));
    store.hold_next_reading();
    let waiting = tokio::spawn({
        let log = Arc::clone(&log);
        async move { log.poll().await }
    });
    while store.holds_next_reading() {
        tokio::task::yield_now().await;
    }
    revoke(&log, "a", "1").await;
    assert!(revokes(&log, "a"));
    waiting.abort();
}

#[tokio::test]
async fn what_only_a_newer_version_knows_is_not_passed_as_known() {
    let store = Unsteady::new();
    let log = log_in(Arc::new(Arc::clone(&store)));
    revoke(&log, "a", "1").await;
    let number = log.published().seq;
    let newer = Change::Append(NewEntry {
        value: r#"{"revokes":"tenant 7","at":1}"#.to_owned(),
        ends: far(),
        above: 0,
    });
    store.commit(vec![newer]).await.unwrap();
    revoke(&log, "b", "1").await;
    assert!(matches!(log.poll().await, Err(StoreError::Unusable(_))));
    assert!(revokes(&log, "b"), "others count");
    assert_eq!(log.published().seq, number);
}

#[test]
fn a_fact_that_is_there_twice_is_listed_once() {
    let mut state = state(&[token("a", "1", NOW + 10), token("b", "1", NOW + 10)]);
    add(
        &mut state,
        &[token("b", "1", NOW + 10), token("c", "1", NOW + 10)],
        NOW,
    );
    assert_eq!(lines(&state), 3);
}

#[tokio::test]
async fn what_no_request_waits_for_reaches_the_store_in_the_end() {
    let store = Unsteady::new();
    let log = log_in(Arc::new(Arc::clone(&store)));
    store.set_away(true);
    log.note([Revocation::for_user("7".to_owned(), unix_now())]);
    assert!(log.flush().await.is_err());
    assert!(!log.revokes(&claims("a", "7", 0)), "the store is the truth");
    store.set_away(false);
    store.fail(Failure::NotAcknowledged);
    for _ in 0..2 {
        assert!(log.flush().await.is_err());
    }
    store.fail(None);
    for _ in 0..2 {
        log.poll().await.unwrap();
        assert!(log.revokes(&claims("a", "7", 0)));
        assert_eq!(count(&store).await, 1);
    }
    // One that is read later is written once.
    store.fail(Failure::NotRead);
    revoke(&log, "b", "8").await;
    log.poll().await.unwrap();
    assert_eq!(count(&store).await, 2);
}

/// As an operator deletes the log that another program has written to.
#[tokio::test]
async fn an_id_that_was_never_given_goes_with_the_log() {
    const PLANTED: i64 = 100_000_000_000_000;
    let store = Unsteady::new();
    let log = log_in(Arc::new(Arc::clone(&store)));
    revoke(&log, "a", "1").await;
    let planted = token("b", "1", far()).fact.append(far(), PLANTED);
    store.commit(vec![planted.unwrap()]).await.unwrap();
    let poll = log.poll().await;
    assert!(matches!(poll, Err(StoreError::Unusable(_))), "{poll:?}");
    let open = OpenStore::unencrypted(Arc::new(Arc::clone(&store)));
    let later = [token("c", "1", far())];
    let append = log.append(&open, &later, Vec::new()).await;
    assert!(matches!(append, Err(StoreError::Unusable(_))), "{append:?}");
    store.lose_everything();
    log.poll().await.unwrap();
    revoke(&log, "c", "1").await;
    assert!(revokes(&log, "a") && revokes(&log, "c") && !revokes(&log, "b"));
    let read = store.since(0).await.unwrap();
    assert!(read.iter().all(|it| it.id < PLANTED), "{read:?}");
}

#[test]
fn readers_share_a_long_list() {
    let tokens = (0..2000).map(|n| token(&n.to_string(), "1", NOW + 10));
    let tokens: Vec<_> = tokens.collect();
    let mut state = state(&tokens);
    let one = state.list.after(None);
    add(&mut state, &[token("a", "1", NOW + 10)], NOW);
    let other = state.list.after(None);
    let (_, one) = one.split_last().unwrap();
    let (_, other) = other.split_last().unwrap();
    assert!(one.len() > 1);
    for (one, other) in one.iter().zip(other) {
        assert_eq!(one.as_ptr(), other.as_ptr());
    }
}

#[test]
fn lines_end_with_the_tokens_and_entries_with_the_session() {
    let session = Revocation {
        ends: NOW + 90_000,
        ..token("s", "1", NOW + 10)
    };
    let by_name = Revocation::for_token("n".to_owned(), None, NOW);
    let mut state = state(&[token("a", "1", NOW + 10), session, by_name]);
    for (now, listed, revoked) in [
        (NOW + 3_599, 3, 3),
        (NOW + 3_600, 0, 2),
        (NOW + 90_000, 0, 1),
    ] {
        add(&mut state, &[], now);
        assert_eq!(lines(&state), listed, "{now}");
        assert_eq!(state.revoked.counts(), [revoked, 0, 0], "{now}");
    }
}

#[test]
fn an_entry_stays_until_lines_are_removed() {
    let one = token("a", "1", NOW);
    for (ends, stays) in [(0, 0), (1, 3_600), (3_600, 3_600), (3_601, 7_200)] {
        let Change::Append(entry) = one.fact.append(NOW + ends, 0).unwrap() else {
            unreachable!("an entry")
        };
        assert_eq!(entry.ends, NOW + stays, "{ends}");
    }
}

#[test]
fn only_what_ends_up_to_a_time_can_end_more_later() {
    let user = |now| Revocation::for_user("1".to_owned(), now);
    assert_eq!(user(NOW).moved_to(NOW + 1), Some(user(NOW + 1)));
    assert_eq!(user(NOW).moved_to(NOW), None);
    assert_eq!(token("a", "1", NOW + 9).moved_to(far()), None);
}

#[test]
fn later_times_replace_what_they_imply() {
    let user = |now| Revocation::for_user("1".to_owned(), now);
    let tokens = [token("a", "1", NOW + 10), token("b", "2", NOW + 10)];
    let application = Revocation::for_application("orders".to_owned(), NOW - 1);
    let mut state = state(&tokens);
    for (revocation, listed) in [
        (user(NOW + 4), 3),
        (user(NOW + 5), 2),
        (application, 3),
        (Revocation::for_everyone(NOW + 5), 2),
        (Revocation::for_everyone(NOW + 6), 1),
    ] {
        add(&mut state, std::slice::from_ref(&revocation), NOW);
        assert_eq!(lines(&state), listed, "{revocation:?}");
        for (id, owner) in [("a", "1"), ("b", "2")] {
            let digests = TokenDigests::from_claims(&claims(id, owner, NOW));
            assert!(state.revoked.revokes(&digests));
        }
    }
}

fn logged_out(issuer: &str, session: &str, id: &str) -> Revocation {
    let ended = Ended::Session {
        session: session.to_owned(),
        user: None,
    };
    stated(issuer, ended, id)
}

fn stated(issuer: &str, ended: Ended, id: &str) -> Revocation {
    let statement = StatementDigests {
        id: RevocationDigest::for_statement(issuer, id),
        token: RevocationDigest::for_text(&format!("token {id}")),
    };
    Revocation::for_statement(issuer.to_owned(), ended, statement, unix_now())
        .until(NOW + 99, NOW + 99)
}

#[test]
fn the_first_line_of_a_user_only_adds_to_the_list() {
    let logged_out_user =
        |user: &str| Revocation::for_foreign_user("https://idp".to_owned(), user.to_owned(), NOW);
    let mut state = state(&[token("a", "1", NOW + 99), logged_out_user("ada")]);
    let known = state.list.chain().cursor();
    add(&mut state, &[logged_out_user("bob")], NOW);
    assert_eq!(text(state.list.after(Some(&known))).lines().count(), 1);
    // It ends what another line names.
    add(
        &mut state,
        &[Revocation::for_user("1".to_owned(), NOW + 9)],
        NOW,
    );
    assert_eq!(lines(&state), 3);
}

#[tokio::test]
async fn a_statement_stays_known_behind_later_ones() {
    let store = Unsteady::new();
    let log = log_in(Arc::new(Arc::clone(&store)));
    let open = OpenStore::unencrypted(Arc::new(Arc::clone(&store)));
    let user = |id| {
        let mut revocation = logged_out("https://idp", "", id);
        revocation.fact.revokes = Revoked::User(RevocationDigest::for_user(""), far());
        revocation.until(far(), far())
    };
    for id in ["a", "b"] {
        log.append(&open, &[user(id)], Vec::new()).await.unwrap();
    }
    let known = |id: &str| {
        let found = log.statement(&RevocationDigest::for_statement("https://idp", id));
        found == Some(RevocationDigest::for_text(&format!("token {id}")))
    };
    assert!(known("a") && known("b") && !known("c"));
    store.lose_everything();
    log.poll().await.unwrap();
    assert!(known("b"), "the entry that counts was written back");
}

#[tokio::test]
async fn the_list_of_each_signing_type_verifies_from_a_cursor_on() {
    for signing_type in SigningType::ALL {
        let log = log_in(Arc::new(Unsteady::new()));
        let keys = holding(pair(signing_type));
        let (signer, keys) = (RevocationListSigner::default(), keys.load_full().unwrap());
        let mut known: Option<RevocationList> = None;
        for id in ["a", "b"] {
            revoke(&log, id, "1").await;
            let cursor = known.as_ref().map(RevocationList::cursor);
            let list = |now| {
                let pair = Arc::clone(keys.ring.current());
                signer.list(&log, pair, cursor.as_deref(), now).unwrap()
            };
            let response = list(NOW + 599);
            assert_eq!(response, list(NOW), "signed once");
            assert_ne!(response, list(NOW + 600));
            let response = text(response);
            assert_eq!(response.lines().count(), 2, "{response}");
            let keys = &keys.verification_keys;
            let verified = RevocationList::verify(keys, &response, known.as_ref()).unwrap();
            assert_eq!(verified.issued_at(), NOW);
            let digests = TokenDigests::from_claims(&claims(id, "1", 0));
            assert!(verified.revokes(&digests));
            known = Some(verified);
        }
        assert_eq!(known.unwrap().count(), 2, "{signing_type}");
    }
}
