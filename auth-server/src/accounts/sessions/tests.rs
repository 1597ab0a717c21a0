//! Sessions, also where the store fails in the middle.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use postern_process::clock::unix_now;
use tokio::task::JoinSet;

use super::*;
use crate::accounts::users::builtin::BuiltinUser;
use crate::revocations::tests::log_of;
use crate::store::at_rest::KeyEncryption;
use crate::store::at_rest::tests::with;
use crate::store::conformance::installations::{Installation, Memory};
use crate::store::conformance::unsteady::{Failure, Unsteady};
use crate::store::open_store::OpenStore;
use crate::store::{Change, Store};

/// A server's sessions of the built-in user.
struct Server {
    store: Arc<Unsteady>,
    sessions: Arc<Sessions>,
}

fn user() -> PresentUser {
    BuiltinUser.present("").unwrap()
}

impl Server {
    fn of(installation: &dyn Installation, encryption: KeyEncryption) -> Self {
        let store = Unsteady::around(installation.open());
        let opened = OpenStore::unencrypted(Arc::new(Arc::clone(&store))).with(encryption);
        let log = log_of(opened.clone());
        let settings = SessionSettings {
            lifetime: 3600,
            token_lifetime: 300,
            max_of_user: NonZeroUsize::new(8),
        };
        let users = Arc::new(BuiltinUser);
        let sessions = Sessions::new(settings, opened, users, log, Metrics::default());
        Self {
            store,
            sessions: Arc::new(sessions),
        }
    }

    async fn begin(&self) -> Option<SessionTokens> {
        let store = &self.sessions.store;
        self.sessions.begin(store, &user(), unix_now(), None).await
    }

    async fn begun(&self) -> Zeroizing<String> {
        self.begin().await.unwrap().refresh_token
    }

    async fn refresh(&self, token: &str) -> Result<SessionTokens, SessionError> {
        let now = unix_now();
        let (sessions, store) = (&self.sessions, &self.sessions.store);
        let session = sessions.open(store, parsed(token), now).await?;
        sessions.renew(store, session, now, None).await
    }

    async fn log_out(&self, token: &str) -> Result<(), StoreError> {
        self.end(token, None).await
    }

    async fn end(&self, token: &str, live_until: Option<i64>) -> Result<(), StoreError> {
        let (id, cause) = (id(token), EndCause::Logout);
        let (sessions, store) = (&self.sessions, &self.sessions.store);
        let ended = sessions.end(store, id, cause, live_until).await;
        ended.map(drop)
    }

    fn fail(&self, failure: Failure) {
        self.store.fail(failure);
    }

    /// Returns the number of revocations in the store.
    async fn revoked(&self) -> usize {
        let entries = self.store.since(0).await;
        entries.unwrap().len()
    }

    async fn count(&self, token: &str) -> usize {
        let sessions = self.sessions.store.sessions_of_same_user(id(token)).await;
        sessions.unwrap().len()
    }
}

fn parsed(token: &str) -> RefreshToken {
    RefreshToken::parse(token).unwrap()
}

fn id(token: &str) -> SessionId {
    parsed(token).session()
}

/// A client that asks again much later would look like a thief.
#[tokio::test]
async fn a_refresh_that_no_replica_acknowledges_changes_nothing() {
    let store = Memory::new();
    let server = Server::of(&store, KeyEncryption::default());
    let token = server.begun().await;
    let held = async || server.store.get(&id(&token).key()).await.unwrap();
    let before = held().await;
    server.fail(Failure::NotAcknowledged);
    let unclear = server.refresh(&token).await.err().unwrap();
    assert!(matches!(
        unclear,
        SessionError::Store(StoreError::Unclear(_))
    ));
    assert_eq!(held().await, before);
    server.store.fail(None);
    assert!(server.refresh(&token).await.is_ok());
}

#[tokio::test]
async fn every_login_at_once_begins_a_session_and_the_limit_stays() {
    let store = Memory::new();
    let server = Arc::new(Server::of(&store, KeyEncryption::default()));
    let mut logins = JoinSet::new();
    for _ in 0..60 {
        let server = Arc::clone(&server);
        logins.spawn(async move { server.begun().await });
    }
    let tokens = logins.join_all().await;
    let until_ended = async || {
        while server.count(&tokens[0]).await > 8 {
            tokio::task::yield_now().await;
        }
    };
    until_ended().await;
    let last = server.begun().await;
    until_ended().await;
    assert!(server.refresh(&last).await.is_ok());
    assert!(server.revoked().await >= 60 - 7);
}

/// The access tokens of the session are over by then.
#[tokio::test]
async fn an_ended_session_stays_ended_where_an_older_store_has_it() {
    let store = Memory::new();
    let server = Server::of(&store, KeyEncryption::default());
    let token = server.begun().await;
    let key = id(&token).key();
    let older = server.store.get(&key).await.unwrap().unwrap();
    assert_eq!(server.log_out(&token).await, Ok(()));
    let again = Change::Put {
        key,
        expected: None,
        value: older.value,
        ends: Some(unix_now() + 3600),
    };
    server.store.commit(vec![again]).await.unwrap();
    let later = unix_now() + 300 + 600 + 60;
    let sessions = &server.sessions;
    let ended = sessions.open(&sessions.store, parsed(&token), later).await;
    let ended = ended.err().unwrap();
    assert!(matches!(ended, SessionError::Ended));
    assert_eq!(server.count(&token).await, 0);
    // One that an older store lacks.
    let lost = Server::of(&Memory::new(), KeyEncryption::default());
    let lost = lost.begun().await;
    let before = server.revoked().await;
    assert_eq!(server.end(&lost, Some(later)).await, Ok(()));
    assert_eq!(server.revoked().await, before + 1, "by its name");
}

#[tokio::test]
async fn an_unreadable_session_is_not_absent_and_ends_by_name() {
    let (in_clear, one, two) = (KeyEncryption::default, || with(1), || with(2));
    let named = || format!("key-encryption key {}", one().current.unwrap().id());
    let store = Memory::new();
    for (begins, ends, cause) in [
        (in_clear(), one(), "not encrypted".to_owned()),
        (one(), in_clear(), named()),
        (one(), two(), named()),
    ] {
        let token = Server::of(&store, begins).begun().await;
        let server = Server::of(&store, ends);
        let rejected = server.log_out(&token).await.unwrap_err();
        assert!(matches!(rejected, StoreError::Unusable(_)));
        assert!(rejected.to_string().contains(&cause), "{rejected}");
        let refreshed = server.refresh(&token).await.err().unwrap();
        assert_eq!(refreshed.to_string(), rejected.to_string());
        assert!(server.count(&token).await > 0);

        let (live_until, before) = (Some(unix_now() + 900), server.revoked().await);
        assert_eq!(server.end(&token, live_until).await, Ok(()));
        assert_eq!(server.count(&token).await, 0);
        assert_eq!(server.end(&token, live_until).await, Ok(()));
        assert_eq!(server.revoked().await, before + 1, "once");
    }
}
