//! The laws of refresh tokens: a session has one chain of them, until it ends.

use std::time::Duration;

use tokio::time::Instant;

use super::Laws;
use crate::model::{Ended, Keeps, Token};

/// Seconds for which the former refresh token gives the same again, and as much for the clocks.
const REPEATED: Duration = Duration::from_secs(30 + 2);
/// Seconds within which the same request again comes from no thief, by every clock.
const REPEATABLE: Duration = Duration::from_secs(30 - 2);

/// Of the settings of the servers.
const LIFETIME: Duration = Duration::from_secs(3600);

impl Laws {
    /// Returns the time of a login, which no clock that was set makes uncertain.
    pub fn login_time(&self, session: &str) -> Option<i64> {
        let login = login_of(&self.tokens, session).filter(|_| !self.sets_clocks);
        login?.claims.issued_at
    }

    /// A use of a refresh token has failed, which began at `sent`.
    pub fn refresh_failed(&mut self, session: usize, sent: Instant) {
        self.sessions[session].failed.get_or_insert(sent);
    }

    /// The latest refresh token of a session that was not ended counts, also where its use has just failed.
    fn require_open(&mut self, session: usize, presented: &str) {
        let session = &self.sessions[session];
        let login = login_of(&self.tokens, &session.id);
        let may_be_ended = login.is_none_or(|token| self.may_be_ended(token));
        let began = session.received.first().map(|(_, at)| *at);
        let has_expired = began.is_none_or(|at| at.elapsed() + REPEATED > LIFETIME);
        let failed_long_ago = session.failed.is_some_and(|at| at.elapsed() > REPEATABLE);
        let may_be_over =
            may_be_ended || has_expired || failed_long_ago || !session.is_safe || self.sets_clocks;
        let holds = may_be_over || !session.has_latest(presented);
        let id = session.id.clone();
        self.require(holds, || format!("session {id} is over, and was not ended"));
    }

    /// A server rejects a refresh token. `is_used`: it has ended the session, as a used one came again;
    /// otherwise it may have.
    pub fn session_is_over(&mut self, session: usize, presented: &str, is_used: bool) {
        self.require_open(session, presented);
        let now = Instant::now();
        let Some(it) = self.sessions.get_mut(session) else {
            return;
        };
        if is_used {
            it.over.get_or_insert(now);
        }
        let confirmed = (is_used && it.is_safe).then_some(now);
        let ended = Ended::Session(it.id.clone());
        self.note(ended, confirmed);
    }

    /// A session has been renewed: `next` came for `presented`, in a request that was sent at `sent`.
    pub fn renewed(&mut self, session: usize, presented: &str, next: &str, sent: Instant) {
        let sets_clocks = self.sets_clocks;
        let Some(it) = self.sessions.get_mut(session) else {
            return;
        };
        let known = it.successors.insert(presented.to_owned(), next.to_owned());
        let is_of_chain = known.as_deref().is_none_or(|known| known == next);
        let received = it.received.iter().find(|(token, _)| token == next);
        let since = received.map(|(_, at)| sent.saturating_duration_since(*at));
        let is_soon = sets_clocks || since.is_none_or(|since| since < REPEATED);
        let is_open = it.over.is_none_or(|over| over > sent);
        let began = it.received.first().map(|(_, at)| *at);
        let age = began.map(|at| sent.saturating_duration_since(at));
        let is_young = sets_clocks || age.is_none_or(|age| age < LIFETIME + REPEATED);
        let login = login_of(&self.tokens, &it.id);
        let mut ends = self.ends.iter();
        let is_revoked = ends.any(|end| {
            let is_confirmed = end.confirmed.is_some_and(|at| at < sent);
            let is_ended = is_confirmed && end.keeps == Keeps::Store && !end.ended.is_key();
            is_ended && login.is_some_and(|token| end.ended.ends(token))
        });
        if received.is_none() {
            it.failed = None;
            it.received.push((next.to_owned(), Instant::now()));
        }
        if it.is_safe {
            let id = it.id.clone();
            self.require(is_of_chain, || {
                format!("session {id} has two refresh tokens at once")
            });
            self.require(is_soon, || {
                format!("session {id} took a used refresh token after {since:?}")
            });
            self.require(is_open && !is_revoked, || {
                format!("session {id} had ended, and was renewed")
            });
            self.require(is_young, || {
                format!("session {id} was renewed after {age:?}")
            });
        }
    }
}

/// Returns the first token of a session.
fn login_of<'t>(tokens: &'t [Token], session: &str) -> Option<&'t Token> {
    let mut tokens = tokens.iter();
    tokens.find(|token| token.claims.session.as_deref() == Some(session))
}
