//! Sessions of users with refresh tokens (RFC 6749 §6): begun by a login, renewed by each use of the
//! present token, ended by a second use, a logout, or a change of the user.
//!
//! The store has one record for each; this server remembers none.

mod of_user;
mod record;
pub(crate) mod refresh_token;
pub(crate) mod used_codes;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_lc_rs::error::Unspecified;
use runtime::named_enum;
use runtime::process::clock::unix_now;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{error, info, warn};
use wire::token::claims::Claims;

use self::of_user::SessionsOfUser;
pub(crate) use self::record::IssuedToken;
use self::record::SessionRecord;
use self::refresh_token::RefreshToken;
use crate::audit;
use crate::keys::live::LiveKeys;
use crate::keys::store::StoreError;
use crate::keys::store::records::{
    NewRecord, OtherRecord, RecordId, RecordStore, StoredRecord, other_record, remove_record,
};
use crate::metrics::{Metrics, SessionEvent};
use crate::revocations::Revocation;
use crate::revocations::queue::RevocationQueue;
use crate::users::{PresentUser, User, UserStore};

/// Thirty days, in seconds. Revocations of users are kept as long: a session must not outlive one.
pub(crate) const MAX_LIFETIME: u32 = 2_592_000;
/// Longest wait of a login for the store; after it the login succeeds without a refresh token.
const STORE_TIMEOUT: Duration = Duration::from_secs(3);
/// Max number of calls at once: each is a connection to Redis, or a thread that waits for a disk.
const MAX_CALLS: usize = 64;
/// Attempts to change the list of a user's sessions: each retry means that another login was faster.
const ATTEMPTS: usize = 8;

named_enum! {
    /// The reason for the end of a session.
    pub(crate) enum EndCause {
        Logout = "logout",
        /// A refresh token came a second time: one of the two clients is a thief.
        Reuse = "reuse",
        Expiry = "expiry",
        /// The user was removed, disabled, or replaced by another one of this account.
        UserGone = "user_gone",
        /// The user has another password or second factor.
        CredentialsChanged = "credentials_changed",
        /// The user or a token of the session was revoked.
        Revocation = "revocation",
        /// Its user began too many later ones.
        Limit = "limit",
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("no session has this refresh token, or it has ended")]
    Ended,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("there is no randomness")]
    Random(#[from] Unspecified),
    #[error("a record cannot be written: {0}")]
    Record(#[from] serde_json::Error),
}

/// The parts of [`Sessions`].
pub(crate) struct SessionParts {
    pub(crate) store: Arc<dyn RecordStore>,
    /// Seconds from a login to the end of its session.
    pub(crate) lifetime: i64,
    /// Max number of each user; `None` for any number.
    pub(crate) max_of_user: Option<NonZeroUsize>,
    pub(crate) users: Arc<dyn UserStore>,
    pub(crate) live_keys: Arc<LiveKeys>,
    pub(crate) revocations: RevocationQueue,
    pub(crate) metrics: Metrics,
}

/// Clones share the state.
#[derive(Clone)]
pub(crate) struct Sessions(Arc<State>);

struct State {
    parts: SessionParts,
    calls: Semaphore,
    /// True once a login without a refresh token was logged.
    is_away: AtomicBool,
}

/// A session that a login is about to begin.
pub(crate) struct Beginning {
    token: RefreshToken,
    credentials: String,
    began: i64,
}

/// A session whose present refresh token was presented.
pub(crate) struct OpenSession {
    pub(crate) user: User,
    token: RefreshToken,
    stored: StoredRecord,
    record: SessionRecord,
}

impl Beginning {
    /// Prepares a session before the credentials are checked: a password that is replaced meanwhile
    /// ends it. `None` without randomness.
    pub(crate) fn new(user: &PresentUser, now: i64) -> Option<Self> {
        Some(Self {
            token: RefreshToken::generate().ok()?,
            credentials: user.credentials.clone(),
            began: now,
        })
    }

    /// Returns the id of the first access token.
    pub(crate) fn token_id(&self) -> Result<String, Unspecified> {
        refresh_token::token_id(&self.token.session())
    }
}

impl OpenSession {
    /// Returns the id of the next access token.
    pub(crate) fn token_id(&self) -> Result<String, Unspecified> {
        refresh_token::token_id(&self.token.session())
    }
}

impl Sessions {
    pub(crate) fn new(parts: SessionParts) -> Self {
        Self(Arc::new(State {
            parts,
            calls: Semaphore::new(MAX_CALLS),
            is_away: AtomicBool::new(false),
        }))
    }

    /// Stores a new session and returns its refresh token; `None` if the store does not take it.
    pub(crate) async fn begin(
        &self,
        beginning: Beginning,
        user: &User,
        issued: IssuedToken,
    ) -> Option<String> {
        let begun = timeout(STORE_TIMEOUT, self.begin_in_store(&beginning, user, issued)).await;
        let outcome = begun.unwrap_or_else(|_| Err(no_response().into()));
        self.0.log_begin(outcome.as_ref().err());
        let event = match outcome {
            Ok(()) => SessionEvent::Begun,
            Err(_) => SessionEvent::NotStored,
        };
        self.0.parts.metrics.session(event);
        outcome.ok().map(|()| beginning.token.text().to_owned())
    }

    async fn begin_in_store(
        &self,
        beginning: &Beginning,
        user: &User,
        issued: IssuedToken,
    ) -> Result<(), SessionError> {
        let surplus = self.0.list(beginning, user).await?;
        if !surplus.is_empty() {
            // The login does not wait for it.
            tokio::spawn(Arc::clone(&self.0).end_surplus(surplus));
        }
        self.0.begin(beginning, user, issued).await
    }

    /// Finds the session of a refresh token.
    ///
    /// # Errors
    /// [`SessionError::Ended`] for a token that is of no use; a known session ends with it.
    pub(crate) async fn open(&self, token: &str, now: i64) -> Result<OpenSession, SessionError> {
        let token = RefreshToken::parse(token).ok_or(SessionError::Ended)?;
        let id = token.session();
        let Some(stored) = self.0.load(&id).await? else {
            return Err(SessionError::Ended);
        };
        let record: SessionRecord =
            serde_json::from_str(&stored.text).map_err(|_| SessionError::Ended)?;
        let present = self.0.parts.users.present(&record.account);
        let is_revoked =
            |user: &str, began, tokens: &[IssuedToken]| self.0.is_revoked(user, began, tokens);
        match record.user(&token.hash(), present, is_revoked, now) {
            Ok(user) => Ok(OpenSession {
                user,
                token,
                stored,
                record,
            }),
            Err(cause) => {
                self.end(id, cause).await?;
                Err(SessionError::Ended)
            }
        }
    }

    /// Replaces the refresh token of a session. Of two uses at once one succeeds; the other is a
    /// second use, and ends the session.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub(crate) async fn renew(
        &self,
        session: OpenSession,
        issued: IssuedToken,
        now: i64,
    ) -> Result<String, SessionError> {
        let next = session.token.renewed()?;
        let (record, surplus) = session.record.renewed(next.hash(), issued, now);
        let text = serde_json::to_string(&record)?;
        let (state, id) = (Arc::clone(&self.0), next.session());
        let swapped = to_the_end(async move {
            let new = NewRecord {
                text: &text,
                ends: record.ends,
            };
            let swapped = state.swap(&id, Some(&session.stored), Some(new)).await?;
            if swapped {
                state.revoke(surplus).await;
            }
            Ok(swapped)
        });
        if swapped.await? {
            return Ok(next.text().to_owned());
        }
        self.end(id, EndCause::Reuse).await?;
        Err(SessionError::Ended)
    }

    /// Ends a session, if there is one, and revokes its access tokens; also if the client does not
    /// wait for that.
    ///
    /// # Errors
    /// While the store is unavailable.
    pub(crate) async fn end(&self, id: RecordId, cause: EndCause) -> Result<(), StoreError> {
        let state = Arc::clone(&self.0);
        to_the_end(async move { state.end(&id, cause).await }).await
    }
}

impl State {
    /// Adds a session to the list of its user, before it begins: each one is listed. Returns the
    /// oldest, for which there is no place.
    async fn list(
        &self,
        beginning: &Beginning,
        user: &User,
    ) -> Result<Vec<RecordId>, SessionError> {
        let Some(max) = self.parts.max_of_user else {
            return Ok(Vec::new());
        };
        let (began, id) = (beginning.began, beginning.token.session());
        let times = (began, began.saturating_add(self.parts.lifetime));
        let add = |listed: &mut SessionsOfUser| listed.add(id, times, max.get());
        self.change_list(&user.id, add).await
    }

    async fn change_list<T>(
        &self,
        user_id: &str,
        change: impl Fn(&mut SessionsOfUser) -> T,
    ) -> Result<T, SessionError> {
        let id = RecordId::of_other(OtherRecord::SessionsOfUser, user_id);
        for _ in 0..ATTEMPTS {
            let held = self.call(other_record(&*self.parts.store, &id)).await?;
            let text = held.as_ref().map(|held| held.text.as_str());
            let before: SessionsOfUser = text
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default();
            let mut listed = before.clone();
            let outcome = change(&mut listed);
            let text = serde_json::to_string(&listed)?;
            let new = listed.ends().map(|ends| NewRecord { text: &text, ends });
            if listed == before || self.swap(&id, held.as_ref(), new).await? {
                return Ok(outcome);
            }
        }
        Err(StoreError::Unavailable("the user's sessions keep changing".to_owned()).into())
    }

    async fn begin(
        &self,
        beginning: &Beginning,
        user: &User,
        issued: IssuedToken,
    ) -> Result<(), SessionError> {
        let Beginning {
            token,
            credentials,
            began,
        } = beginning;
        let ends = began.saturating_add(self.parts.lifetime);
        let times = (*began, ends);
        let record = SessionRecord::new(token.hash(), user, credentials.clone(), times, issued);
        let text = serde_json::to_string(&record)?;
        let new = NewRecord { text: &text, ends };
        if self.swap(&token.session(), None, Some(new)).await? {
            Ok(())
        } else {
            Err(SessionError::Ended)
        }
    }

    /// Logs the first login without a refresh token, and the next one with it.
    fn log_begin(&self, error: Option<&SessionError>) {
        let was_away = self.is_away.swap(error.is_some(), Ordering::Relaxed);
        match error {
            Some(error) if !was_away => {
                warn!(%error, "logins get no refresh token: the store does not take sessions");
            }
            None if was_away => info!("logins get refresh tokens again"),
            _ => {}
        }
    }

    async fn end(&self, id: &RecordId, cause: EndCause) -> Result<(), StoreError> {
        let removed = self
            .call(remove_record(&*self.parts.store, id, is_session))
            .await?;
        let Some(removed) = removed else {
            return Ok(());
        };
        let record: Option<SessionRecord> = serde_json::from_str(&removed.text).ok();
        let account = record.as_ref().map_or("", |record| &record.account);
        audit::session_ended(account, cause.name());
        self.parts.metrics.session(match cause {
            EndCause::Reuse => SessionEvent::Reused,
            _ => SessionEvent::Ended,
        });
        let Some(record) = record else {
            return Ok(());
        };
        self.revoke(record.revocations(unix_now())).await;
        if self.parts.max_of_user.is_some() && cause != EndCause::Limit {
            // Without it the session counts on in the list, until its time is over.
            let _ = self
                .change_list(&record.user_id, |listed| listed.remove(*id))
                .await;
        }
        Ok(())
    }

    async fn end_surplus(self: Arc<Self>, surplus: Vec<RecordId>) {
        for id in surplus {
            if let Err(error) = self.end(&id, EndCause::Limit).await {
                warn!(%error, "a user's oldest session stays, beyond the limit");
            }
        }
    }

    async fn revoke(&self, revocations: Vec<Revocation>) {
        if !revocations.is_empty() {
            self.parts.revocations.note(revocations).await;
        }
    }

    /// Returns true if the user was revoked since the session began, or one of its tokens was.
    fn is_revoked(&self, user: &str, began: i64, tokens: &[IssuedToken]) -> bool {
        let Some(keys) = self.parts.live_keys.published() else {
            return true;
        };
        let revocations = keys.ring().revocations();
        let claims = |token_id| Claims {
            user_id: user.to_owned(),
            issued_at: Some(began),
            token_id,
            ..Claims::default()
        };
        revocations.revokes(&claims(None))
            || tokens
                .iter()
                .any(|token| revocations.revokes(&claims(Some(token.id.clone()))))
    }

    async fn load(&self, id: &RecordId) -> Result<Option<StoredRecord>, StoreError> {
        self.call(self.parts.store.record(id)).await
    }

    async fn swap(
        &self,
        id: &RecordId,
        expected: Option<&StoredRecord>,
        new: Option<NewRecord<'_>>,
    ) -> Result<bool, StoreError> {
        self.call(self.parts.store.swap_record(id, expected, new))
            .await
    }

    /// Bounds the number and the time of calls.
    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let bounded = async {
            let _permit = self.calls.acquire().await;
            call.await
        };
        let done = timeout(STORE_TIMEOUT, bounded).await;
        done.unwrap_or_else(|_| Err(no_response()))
    }
}

fn no_response() -> StoreError {
    StoreError::Unavailable("the store of sessions does not respond".to_owned())
}

/// Runs a change to its end, also if the client hangs up: no token stays that nothing ends.
async fn to_the_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::spawn(change).await;
    done.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
}

fn is_session(held: &StoredRecord) -> bool {
    serde_json::from_str::<SessionRecord>(&held.text).is_ok()
}

/// Returns true for a session of which this is one of the access tokens: a `jti` may be forged and
/// name any record.
pub(crate) fn has_token(held: &StoredRecord, token_id: &str) -> bool {
    let record: Result<SessionRecord, _> = serde_json::from_str(&held.text);
    record.is_ok_and(|record| record.has_token(token_id))
}

/// Returns the revocations of the access tokens of a session that a command has ended at `now`.
pub(crate) fn revocations_of(ended: &StoredRecord, now: i64) -> Vec<Revocation> {
    let record: Result<SessionRecord, _> = serde_json::from_str(&ended.text);
    record.map_or_else(|_| Vec::new(), |record| record.revocations(now))
}

/// Logs an error that is not the client's.
pub(crate) fn log_error(error: &SessionError) {
    match error {
        SessionError::Ended => {}
        SessionError::Store(error) => warn!(%error, "a session is not available"),
        SessionError::Random(_) | SessionError::Record(_) => {
            error!(%error, "a session cannot be renewed");
        }
    }
}
