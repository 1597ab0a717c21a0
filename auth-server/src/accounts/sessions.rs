//! Sessions of users with refresh tokens (RFC 6749 §6): begun by a login, renewed by each use of the
//! present token, ended by the use of an older one, a logout, or a change of the user.
//!
//! The store has one record for each; this server remembers none. A response is sent after the commit.

mod record;
pub(crate) mod records;
pub(crate) mod refresh_token;

use std::num::NonZeroUsize;
use std::sync::Arc;

use parking_lot::Mutex;
use postern_process::clock::instant;
use postern_process::logs::once_a_minute::OnceAMinute;
use postern_process::{named_enum, tasks};
use postern_token::claims::Claims;
use postern_token::possession::Binding;
use tracing::{info, warn};
use zeroize::Zeroizing;

use self::record::{NoUser, SessionRecord, SessionTimes, Use};
use self::refresh_token::{RefreshToken, SessionId};
use crate::accounts::users::{PresentUser, User, UserStore};
use crate::random;
use crate::revocations::log::RevocationLog;
use crate::revocations::{Revocation, end_of_tokens};
use crate::store::open_store::OpenStore;
use crate::store::{Outcome, StoreError, Version, to_the_end};
use crate::telemetry::audit;
use crate::telemetry::metrics::{Metrics, SessionEvent};

/// Max attempts of a change. Each retry means that another call changed the session meanwhile.
const ATTEMPTS: usize = 8;

named_enum! {
    /// The reason for the end of a session.
    pub(crate) enum EndCause {
        Logout = "logout",
        /// A refresh token came again after its successor was used, or much later than the first time:
        /// one of two clients is a thief.
        Reuse = "reuse",
        /// The user or a token of the session was revoked, as by a removal or another password.
        Revocation = "revocation",
        /// Its user began too many later ones.
        Limit = "limit",
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("no session has this refresh token, or it has ended")]
    Ended,
    /// The users files of two servers differ, and one is older: a real change of the user is a revocation.
    #[error("the users of this server are others than at the login")]
    OtherUsers,
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(crate) struct SessionSettings {
    /// Seconds from a login to the end of its session.
    pub(crate) lifetime: i64,
    /// Seconds for which an access token is valid.
    pub(crate) token_lifetime: i64,
    /// Max number of sessions of each user; `None` for any number.
    pub(crate) max_of_user: Option<NonZeroUsize>,
}

pub(crate) struct Sessions {
    settings: SessionSettings,
    /// The store for work that no request waits for; requests pass their own.
    store: OpenStore,
    users: Arc<dyn UserStore>,
    log: Arc<RevocationLog>,
    metrics: Metrics,
    outage: Mutex<LoggedOutage>,
    /// Sessions that the store may have, and whose refresh token no client has. While there are such sessions
    /// no other is begun, so that there are never more of them than logins in flight.
    pub(crate) unclear: Mutex<Vec<SessionId>>,
    /// Held while unclear sessions are removed.
    removing: tokio::sync::Mutex<()>,
}

/// The log lines about logins without the store. On a disk that is nearly full every other login may be stored,
/// which would be two lines for each.
#[derive(Debug, Default)]
struct LoggedOutage {
    /// True if the last line was about a login that was not stored.
    is_away: bool,
    line: OnceAMinute,
}

/// A session of which a refresh token was presented that may be used.
pub(crate) struct OpenSession {
    pub(crate) present: PresentUser,
    token: RefreshToken,
    token_use: Use,
    version: Option<Version>,
    record: SessionRecord,
}

/// The tokens of a session since its login, or the last use of a refresh token.
pub(crate) struct SessionTokens {
    pub(crate) user: User,
    /// `sid` of the access token.
    pub(crate) id: String,
    pub(crate) refresh_token: Zeroizing<String>,
    /// `jti`, `iat` and `exp` of the access token.
    pub(crate) token_id: String,
    pub(crate) issued_at: i64,
    pub(crate) expires: i64,
    /// The key and the certificate that both tokens are bound to.
    pub(crate) binding: Option<Binding>,
}

impl Sessions {
    pub(crate) fn new(
        settings: SessionSettings,
        store: OpenStore,
        users: Arc<dyn UserStore>,
        log: Arc<RevocationLog>,
        metrics: Metrics,
    ) -> Self {
        Self {
            settings,
            store,
            users,
            log,
            metrics,
            outage: Mutex::default(),
            unclear: Mutex::default(),
            removing: tokio::sync::Mutex::default(),
        }
    }

    /// Begins a session of a user who has logged in at `now`; `None` if the store does not take the session,
    /// or may not have taken it.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        store: &OpenStore,
        user: &PresentUser,
        now: i64,
        binding: Option<Binding>,
    ) -> Option<SessionTokens> {
        if !self.unclear.lock().is_empty() {
            // A commit now would leave one more unclear session, after a long wait: this login does not wait.
            self.metrics.session(SessionEvent::NotStored);
            self.remove_unclear();
            return None;
        }
        let token = RefreshToken::generate(&user.user.id).ok()?;
        let secret = random::secret().ok()?;
        let times = SessionTimes {
            began: now,
            ends: now.saturating_add(self.settings.lifetime),
            expires: now.saturating_add(self.settings.token_lifetime),
        };
        let record = SessionRecord::new(&token, &secret, user, times, binding);
        let id = token.session();
        let (sessions, task_store, new) = (Arc::clone(self), store.clone(), record.clone());
        // Also where the client does not wait for that: an unclear one has to be known.
        let begun = to_the_end(async move {
            let begun = task_store.write_session(id, None, &new).await;
            if matches!(begun, Err(StoreError::Unclear(_))) {
                sessions.unclear.lock().push(id);
                sessions.remove_unclear();
            }
            begun
        });
        let begun = begun.await;
        self.log_outage(begun.as_ref().err());
        self.metrics.session(match begun {
            Ok(true) => SessionEvent::Begun,
            _ => SessionEvent::NotStored,
        });
        match begun {
            Ok(true) => {
                self.end_surplus(store, id).await;
                Some(SessionTokens::new(&record, &token, user.user.clone()))
            }
            _ => None,
        }
    }

    /// Removes the unclear sessions, unless a task does so already. After a failure they are left for the
    /// next login or poll.
    pub(crate) fn remove_unclear(self: &Arc<Self>) {
        if self.unclear.lock().is_empty() {
            return;
        }
        let sessions = Arc::clone(self);
        tasks::spawn(async move {
            let Ok(_alone) = sessions.removing.try_lock() else {
                return;
            };
            // The loop takes sessions too that become unclear meanwhile.
            while let Some(id) = sessions.first_unclear() {
                if sessions.store.remove_session(id).await.is_err() {
                    return;
                }
                sessions.unclear.lock().retain(|other| *other != id);
            }
        });
    }

    fn first_unclear(&self) -> Option<SessionId> {
        self.unclear.lock().first().copied()
    }

    /// Ends the oldest sessions of the new one's user for which there is no place.
    async fn end_surplus(self: &Arc<Self>, store: &OpenStore, new: SessionId) {
        let Some(max) = self.settings.max_of_user else {
            return;
        };
        let mut surplus = match store.sessions_of_same_user(new).await {
            Ok(all) => all,
            Err(error) => return log_surplus(&error),
        };
        // Sessions that began in this second may sort after the new one.
        surplus.retain(|id| *id != new);
        surplus.truncate(surplus.len().saturating_sub(max.get() - 1));
        if surplus.is_empty() {
            return;
        }
        let (sessions, store) = (Arc::clone(self), store.clone());
        // The login does not wait for the ends.
        tasks::spawn(async move {
            for id in surplus {
                if let Err(error) = sessions.end_now(&store, id, EndCause::Limit, None).await {
                    log_surplus(&error);
                }
            }
        });
    }

    /// Finds the session of a refresh token.
    ///
    /// # Errors
    /// [`SessionError::Ended`] for a token that may not be used; if its session is known, that ends too.
    pub(crate) async fn open(
        self: &Arc<Self>,
        store: &OpenStore,
        token: RefreshToken,
        now: i64,
    ) -> Result<OpenSession, SessionError> {
        let id = token.session();
        for _ in 0..ATTEMPTS {
            let held = store.read_session(id).await?;
            let Some(record) = held.record? else {
                // A former primary of the store does not know what began since.
                if store.confirm_session(id, held.version).await? {
                    return Err(SessionError::Ended);
                }
                continue;
            };
            // Revocations before this use have to count now, not from the next poll on: they do not end an
            // access token that is issued now.
            self.log.catch_up(store).await?;
            let present = self.users.present(&record.account);
            let is_revoked = |user: &str, began| self.is_revoked(id, user, began);
            let cause = match record.user(&token, present, is_revoked, now) {
                Ok((present, token_use)) => {
                    return Ok(OpenSession {
                        present,
                        token,
                        token_use,
                        version: held.version,
                        record,
                    });
                }
                Err(NoUser::OtherUsers) => return Err(SessionError::OtherUsers),
                Err(NoUser::Expired) => return Err(SessionError::Ended),
                Err(NoUser::Over(cause)) => cause,
            };
            // The use before this one may have been unclear for longer than a repeated one counts as such.
            if store.confirm_session(id, held.version).await? {
                self.end(store, id, cause, None).await?;
                return Err(SessionError::Ended);
            }
        }
        Err(keeps_changing().into())
    }

    /// Replaces the refresh token of a session. Of two simultaneous uses one replaces it, and both get the
    /// same token.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub(crate) async fn renew(
        self: &Arc<Self>,
        store: &OpenStore,
        mut session: OpenSession,
        now: i64,
        binding: Option<Binding>,
    ) -> Result<SessionTokens, SessionError> {
        let id = session.token.session();
        for _ in 0..ATTEMPTS {
            // Confirmed first: after an unclear outcome, a client that tries again much later would look like
            // a thief.
            let expected = session.version.clone();
            if store.confirm_session(id, expected.clone()).await? {
                if session.token_use == Use::Repeated {
                    return Ok(session.given());
                }
                let record = session.record.renewed(
                    &session.token,
                    now,
                    now.saturating_add(self.settings.token_lifetime),
                    binding,
                );
                if store.write_session(id, expected, &record).await? {
                    return Ok(OpenSession { record, ..session }.given());
                }
            }
            session = self.open(store, session.token, now).await?;
        }
        Err(keeps_changing().into())
    }

    /// Waits until it is certain that there is no such session.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn confirm_absence(
        &self,
        store: &OpenStore,
        id: SessionId,
    ) -> Result<(), StoreError> {
        self.log.confirm(store).await?;
        match store.confirm_session(id, None).await? {
            true => Ok(()),
            false => Err(StoreError::changed()),
        }
    }

    /// Ends a session, if there is one, in one commit with the revocation of its access tokens, even if the
    /// client does not wait. `live_until` is the time until which a verified access token of the session may be
    /// valid: with it the session ends even if its record cannot be read. Returns false if there is no
    /// session: the caller calls [`confirm_absence`](Self::confirm_absence).
    ///
    /// # Errors
    /// While the store is unavailable, or the record cannot be read.
    pub(crate) async fn end(
        self: &Arc<Self>,
        store: &OpenStore,
        id: SessionId,
        cause: EndCause,
        live_until: Option<i64>,
    ) -> Result<bool, StoreError> {
        let (sessions, store) = (Arc::clone(self), store.clone());
        to_the_end(async move { sessions.end_now(&store, id, cause, live_until).await }).await
    }

    /// Logs a login that the store did not record, at most once a minute, and the next one that it recorded.
    fn log_outage(&self, error: Option<&StoreError>) {
        let mut outage = self.outage.lock();
        match error {
            Some(error) if !outage.is_away && outage.line.is_due(instant()) => {
                outage.is_away = true;
                warn!(%error, "the store does not record logins: users get an access token without a refresh token");
            }
            None if std::mem::take(&mut outage.is_away) => info!("the store records logins again"),
            _ => {}
        }
    }

    async fn end_now(
        &self,
        store: &OpenStore,
        id: SessionId,
        cause: EndCause,
        live_until: Option<i64>,
    ) -> Result<bool, StoreError> {
        for _ in 0..ATTEMPTS {
            let now = store.clock.now();
            let by_name = |live: i64| {
                let ends = now.saturating_add(self.settings.lifetime);
                let issued = live.saturating_sub(end_of_tokens(0, self.settings.token_lifetime));
                Revocation::for_token(id.text(), None, now)
                    .not_before(issued)
                    .until(live, ends)
            };
            let held = store.read_session(id).await?;
            let (account, revoked) = match (&held.record, live_until) {
                (Ok(Some(record)), _) => (record.account.as_str(), record.revocation(id, now)),
                (Ok(None), Some(live)) if live > now && !self.is_revoked(id, "", now) => {
                    ("", Some(by_name(live)))
                }
                (Ok(None), _) => return Ok(false),
                (Err(error), None) => return Err(error.clone()),
                // Other tokens of the session end no later than a token that is issued now.
                (Err(_), Some(live)) => {
                    let live = live.max(end_of_tokens(now, self.settings.token_lifetime));
                    ("", Some(by_name(live)))
                }
            };
            let removal = held.removal().into_iter().collect();
            let done = self.log.append(store, revoked.as_slice(), removal);
            if done.await? == Outcome::Committed {
                audit::session_ended(account, cause.name());
                self.metrics.session(match cause {
                    EndCause::Reuse => SessionEvent::Reused,
                    _ => SessionEvent::Ended,
                });
                return Ok(true);
            }
        }
        Err(keeps_changing())
    }

    /// Returns true if the session was revoked, or its user since it began.
    fn is_revoked(&self, id: SessionId, user: &str, began: i64) -> bool {
        self.log.revokes(&Claims {
            user_id: user.to_owned(),
            issued_at: Some(began),
            session: Some(id.text()),
            ..Claims::default()
        })
    }
}

impl OpenSession {
    /// Returns the key and the certificate that the refresh token is bound to.
    pub(crate) const fn binding(&self) -> Option<&Binding> {
        self.record.binding.as_ref()
    }

    fn given(self) -> SessionTokens {
        SessionTokens::new(
            &self.record,
            &self.record.given(&self.token),
            self.present.user,
        )
    }
}

impl SessionTokens {
    fn new(record: &SessionRecord, refresh_token: &RefreshToken, user: User) -> Self {
        let session = refresh_token.session();
        Self {
            user,
            id: session.text(),
            refresh_token: refresh_token.text(),
            token_id: record.token_id(session),
            issued_at: record.renewed,
            expires: record.expires,
            binding: record.binding,
        }
    }
}

fn keeps_changing() -> StoreError {
    StoreError::Unavailable("a session keeps changing".to_owned())
}

fn log_surplus(error: &StoreError) {
    warn!(%error, "a user's oldest session stays, beyond the limit");
}

#[cfg(test)]
mod tests;
