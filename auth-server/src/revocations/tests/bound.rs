//! Lists that are too long: what one revocation replaces, and whose tokens that ends.

use super::*;
use crate::revocations::log::BATCH;
use crate::revocations::state::bound::{Owner, Surplus};

#[test]
fn of_too_many_lines_those_of_the_users_with_most_go_first() {
    let many = |owner: fn(u32) -> String, number: u32| {
        let token = |number| token(&format!("token {number}"), &owner(number), NOW + 99);
        state(&(0..number).map(token).collect::<Vec<_>>())
    };
    let of_one = |number| match number % 100 {
        0 => "other".to_owned(),
        _ => "1".to_owned(),
    };
    let later = NOW + 60;
    assert_eq!(many(of_one, 40_000).surplus(later, KEEP), []);
    let state = many(of_one, 44_000);
    assert_eq!(state.surplus(NOW, KEEP), [], "what is new is not implied");
    let surplus = state.surplus(later, KEEP);
    let sizes: Vec<_> = surplus.iter().map(|it| it.ids.len()).collect();
    assert_eq!(sizes, [43_560]);
    assert_eq!(
        surplus[0].owner,
        Owner::User(RevocationDigest::for_user("1"))
    );
    let of_each = many(|number| number.to_string(), 44_000).surplus(later, KEEP);
    let Surplus {
        owner, ids, ends, ..
    } = &of_each[0];
    assert_eq!(
        (*owner, ids.len(), *ends),
        (Owner::Everyone, 44_000, NOW + 3_600)
    );
}

#[test]
fn too_many_sessions_of_an_issuer_end_its_tokens_alone() {
    let foreign = (0..43_000).map(|n: u32| logged_out("https://idp", &n.to_string(), ""));
    // Two of each user.
    let own = (0..1_000).map(|n: u32| token(&n.to_string(), &(n / 2).to_string(), NOW + 99));
    let mut state = state(&foreign.chain(own).collect::<Vec<_>>());
    let surplus = state.surplus(NOW + 60, KEEP);
    let owners: Vec<_> = surplus.iter().map(|it| it.owner).collect();
    let idp = RevocationDigest::for_issuer("https://idp");
    assert_eq!(owners, [Owner::Issuer(idp)]);
    assert_eq!(surplus[0].ids.len(), 43_000);
    let mut all_of_it = Revocation::for_issuer(String::new(), NOW + 60);
    all_of_it.fact.revokes = Revoked::Application(idp, NOW + 61);
    add(&mut state, &[all_of_it], NOW);
    assert_eq!(lines(&state), 1_001, "those of the issuer are implied");
}

/// Returns the ends of sessions at an issuer, of these users in turn.
fn ended_sessions(issuer: &str, users: u32, sessions: u32) -> impl Iterator<Item = Revocation> {
    (0..sessions).map(move |number| {
        let user = Some((number % users).to_string());
        let session = number.to_string();
        stated(issuer, Ended::Session { session, user }, "")
    })
}

#[test]
fn one_user_with_many_sessions_ends_no_other_user_s() {
    let many = ended_sessions("https://large", 22_000, 22_000);
    let state = state(
        &many
            .chain(ended_sessions("https://small", 1, 21_800))
            .collect::<Vec<_>>(),
    );
    let surplus = state.surplus(NOW + 60, KEEP);
    let mallory = RevocationDigest::for_foreign_user("https://small", "0");
    let owners: Vec<_> = surplus.iter().map(|it| it.owner).collect();
    assert_eq!(owners, [Owner::User(mallory)]);
    let replacing = surplus[0].revocation(NOW + 60, 9_999);
    let issuer = RevocationDigest::for_issuer("https://small");
    assert_eq!(replacing.fact.revokes, Revoked::User(mallory, NOW + 61));
    assert_eq!(replacing.fact.issuer, Some(issuer));
    // As long as an end of this moment.
    assert_eq!(replacing.fact.live, Some(NOW + 61 + 99));
    assert_eq!(replacing.ends, NOW + 3_600);
}

#[test]
fn an_issuer_ends_with_its_users_where_these_alone_are_too_many() {
    let foreign = ended_sessions("https://idp", 30_000, 60_000);
    let own = (0..20_000).map(|n: u32| token(&n.to_string(), &n.to_string(), NOW + 99));
    let state = state(&foreign.chain(own).collect::<Vec<_>>());
    let surplus = state.surplus(NOW + 60, KEEP);
    let owners: Vec<_> = surplus.iter().map(|it| it.owner).collect();
    let idp = RevocationDigest::for_issuer("https://idp");
    assert_eq!(owners, [Owner::Issuer(idp)]);
    let replacing = surplus[0].revocation(NOW + 60, 9_999);
    assert_eq!(replacing.fact.issuer, Some(idp));
}

#[test]
fn what_is_not_listed_any_more_makes_no_room() {
    let foreign = ended_sessions("https://idp", 43_600, 43_600);
    // Their access tokens have expired, their refresh tokens would not have.
    let own = (0..60_000).map(|n: u32| {
        let ended = token(&n.to_string(), &(n / 200).to_string(), NOW + 99);
        ended.until(NOW - 1, NOW + 99)
    });
    let state = state(&own.chain(foreign).collect::<Vec<_>>());
    let surplus = state.surplus(NOW + 60, KEEP);
    let owners: Vec<_> = surplus.iter().map(|it| it.owner).collect();
    let idp = RevocationDigest::for_issuer("https://idp");
    assert_eq!(owners, [Owner::Issuer(idp)]);
}

#[test]
fn an_issuer_whose_clock_is_ahead_ends_no_other_s_tokens() {
    let foreign = ended_sessions("https://idp", 43_600, 43_600);
    let own = [token("own", "1", NOW + 99)];
    let state = state(&foreign.chain(own).collect::<Vec<_>>());
    // Thirty seconds before the time of the entries.
    let surplus = state.surplus(NOW - 30, KEEP);
    let idp = RevocationDigest::for_issuer("https://idp");
    assert_eq!(surplus[0].owner, Owner::Issuer(idp));
    let revokes = surplus[0].revocation(NOW - 30, KEEP).fact.revokes;
    assert_eq!(revokes, Revoked::Application(idp, NOW + 6));
}

#[tokio::test]
async fn many_users_with_two_sessions_are_replaced_in_few_commits() {
    let store = Unsteady::new();
    let log = log_in(Arc::new(Arc::clone(&store)));
    let now = unix_now() - 60;
    let many = ended_sessions("https://idp", 22_000, 44_000).map(|it| it.until(far(), far()));
    let many: Vec<_> = many.collect();
    for some in many.chunks(BATCH) {
        let changes = some.iter();
        let changes = changes.map(|it| at(now, it).append(it.ends, 0).unwrap());
        store.commit(changes.collect()).await.unwrap();
    }
    let before = store.commits();
    log.poll().await.unwrap();
    assert!(!log.published().is_full());
    let commits = store.commits() - before;
    assert!(commits < 100, "{commits} commits");
}

#[tokio::test]
async fn one_revocation_replaces_too_many() {
    let store = Unsteady::new();
    let open = || log_in(Arc::new(Arc::clone(&store)));
    let (one, other) = (open(), open());
    let tokens = (0..44_000).map(|id| token(&format!("{id}"), "1", far()));
    let tokens: Vec<_> = tokens.collect();
    let now = unix_now() - 60;
    for some in tokens.chunks(500) {
        let changes = some.iter();
        let changes = changes.map(|it| at(now, it).append(it.ends, 0).unwrap());
        store.commit(changes.collect()).await.unwrap();
    }
    for log in [&other, &one, &other] {
        log.poll().await.unwrap();
    }
    assert!(count(&store).await <= 2);
    for log in [&one, &other] {
        assert!(text(log.published().list.after(None)).lines().count() <= 2);
        assert!(revokes(log, "not revoked by itself") && revokes(log, "1"));
    }
}
