//! The bound that all requests share on their calls of the store.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use futures_util::future::join_all;
use futures_util::{FutureExt, poll};

use super::*;
use crate::accounts::sessions::refresh_token::RefreshToken;
use crate::accounts::sessions::{EndCause, SessionError};
use crate::accounts::users::file::tests::file_with;
use crate::config::tests::config;
use crate::revocations::Revocation;
use crate::store::conformance::unsteady::Unsteady;
use crate::store::{Outcome, StoreError};

#[tokio::test]
async fn every_request_takes_its_calls_of_the_store_from_one_bound() {
    tokio::time::pause();
    let file = file_with(&["ada"]);
    let users = format!("--users=file:{}", file.path().display());
    let store = OpenStore::unencrypted(Arc::new(Unsteady::new()));
    let app = App::new(config(&[&users]).unwrap(), store);
    let ada = app.users.present("ada").unwrap();
    let token = RefreshToken::generate("1").unwrap();
    let recorded = app.recorded_users.as_ref().unwrap();
    let (sessions, revocations) = (&app.sessions, &app.revocations);
    let mut held = Vec::new();
    while let Ok(call) = app.requests.call().await {
        held.push(call);
    }
    for is_busy in [true, false] {
        let knows_ada = if is_busy {
            Err(StoreError::Busy)
        } else {
            Ok(true)
        };
        assert_eq!(recorded.knows(&app.requests, &ada).await, knows_ada);
        let opened = sessions
            .open(&app.requests, token.clone(), 0)
            .await
            .err()
            .unwrap();
        let is_error = matches!(opened, SessionError::Store(StoreError::Busy));
        assert_eq!(is_error, is_busy);
        let id = token.session();
        let ended = sessions.end(&app.requests, id, EndCause::Logout, None);
        let ended = ended.await;
        assert_eq!(ended.is_err(), is_busy);
        let revoked = [Revocation::for_everyone(0)];
        let revoked = revocations
            .append(&app.requests, &revoked, Vec::new())
            .await;
        assert_eq!(revoked.is_ok_and(|it| it == Outcome::Committed), !is_busy);
        revocations.note([Revocation::for_user("7".to_owned(), 0)]);
        assert_eq!(
            revocations.poll().await,
            Ok(()),
            "a poll waits for no request"
        );
        held.clear();
    }
}

#[tokio::test]
async fn clients_take_turns_at_the_store() {
    let store = OpenStore::unencrypted(Arc::new(Unsteady::new()));
    let requests = App::new(config(&[]).unwrap(), store).requests;
    let [flooding, other] =
        ["192.0.2.1", "198.51.100.1"].map(|client| requests.for_client(client.parse().unwrap()));
    let mut held = Vec::new();
    while let Some(call) = flooding.call().now_or_never() {
        held.push(call.unwrap());
    }
    let mut flood = Box::pin(join_all((0..1000).map(|_| flooding.call())));
    assert!(poll!(&mut flood).is_pending());
    let mut call = Box::pin(other.call());
    assert!(poll!(&mut call).is_pending());
    // The turn of the one that floods, and then of the other one.
    held.truncate(held.len() - 2);
    assert!(poll!(&mut call).is_ready());
}
