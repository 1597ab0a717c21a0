//! Statements of other issuers that sessions have ended: logout tokens (OpenID Connect Back-Channel Logout
//! 1.0), and the security event tokens (RFC 8417) of Shared Signals.

use crate::claims::Claims;
use crate::compact::{self, CheckType};
use crate::invalid::InvalidToken;
use crate::keys::KeySet;
use crate::strict_json::{self, Map, Value, member};
use crate::verifier::verified_payload;

/// The event of a logout token (Back-Channel Logout §2.4).
const LOGOUT: &str = "http://schemas.openid.net/event/backchannel-logout";
/// The event that ends the session which is its subject, or all sessions of the user who is its subject.
const SESSION_EVENT: &str = "https://schemas.openid.net/secevent/caep/event-type/session-revoked";
/// Events that end all sessions of a user.
const USER_EVENTS: [&str; 4] = [
    "https://schemas.openid.net/secevent/caep/event-type/credential-change",
    "https://schemas.openid.net/secevent/risc/event-type/account-disabled",
    "https://schemas.openid.net/secevent/risc/event-type/account-purged",
    "https://schemas.openid.net/secevent/risc/event-type/sessions-revoked",
];
/// Seconds by which the clock of an issuer may be ahead.
pub const MAX_AHEAD: i64 = 60;

/// The forms of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A logout token.
    LogoutToken,
    /// A security event token.
    SecurityEvent,
}

/// The issuer and the receiver that a statement has to name, and its largest age in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// `iss`.
    pub issuer: &'a str,
    /// The accepted audiences, of which `aud` has to hold one.
    pub audiences: &'a [String],
    /// Max age in seconds since `iat`.
    pub max_age: i64,
}

/// A verified statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// `jti`.
    pub id: String,
    /// `iat`, by the clock of the issuer.
    pub issued_at: i64,
    /// The sessions that have ended; empty for an event that ends no session.
    pub ended: Vec<Ended>,
}

/// A session that has ended, or all sessions of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// One session, with its user if known.
    Session {
        /// `sid`.
        session: String,
        /// `sub`.
        user: Option<String>,
    },
    /// All sessions of the user with this `sub`.
    User(String),
}

/// The reason why a statement does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidStatement {
    /// The statement breaks a rule of any token.
    Token(InvalidToken),
    /// No text in `jti`.
    Id,
    /// Another statement had the same `jti`.
    IdUsed,
    /// No time in `iat`.
    NoTime,
    /// `iat` is too long ago.
    TooOld,
    /// `iat` is in the future.
    Ahead,
    /// A logout token with `nonce` could be an ID token.
    Nonce,
    /// No object in `events`, or without the event.
    Events,
    /// Neither a session nor a user.
    Subject,
}

impl From<InvalidToken> for InvalidStatement {
    fn from(invalid: InvalidToken) -> Self {
        Self::Token(invalid)
    }
}

impl Statement {
    /// Verifies a statement with the keys of its issuer at `now`, in seconds since the epoch.
    ///
    /// # Errors
    /// The first broken rule. With newer keys it may hold: [`KeySet::may_be_outdated`].
    pub fn verify(
        form: Form,
        keys: &KeySet,
        token: &str,
        expected: Expected<'_>,
        now: i64,
    ) -> Result<Self, InvalidStatement> {
        let check_type: CheckType = match form {
            Form::LogoutToken => check_logout_type,
            Form::SecurityEvent => check_event_type,
        };
        // Verify the signature first: nothing else in the token is to be trusted before.
        let payload = verified_payload(keys, token, check_type)?;
        let members = strict_json::object(&payload).map_err(|_| InvalidToken::Malformed)?;
        let mut registered = members.clone();
        // The user is read as an id below: some issuers number them.
        registered.remove("sub");
        let claims = Claims::registered(&mut registered)?;
        let issued_at = check_claims(&claims, expected, now)?;
        let id = match claims.token_id {
            Some(id) if !id.is_empty() => id,
            _ => return Err(InvalidStatement::Id),
        };
        Ok(Self {
            id,
            issued_at,
            ended: match form {
                Form::LogoutToken => vec![logged_out(&members)?],
                Form::SecurityEvent => ended(&members, expected.issuer)?,
            },
        })
    }
}

/// Checks the type of a logout token, which Back-Channel Logout §2.4 recommends; libraries that sign only ID
/// tokens write `JWT`.
fn check_logout_type(header: &Map) -> Result<(), InvalidToken> {
    match member(header, "typ") {
        None => Ok(()),
        Some(named) => check_type(named, &["logout+jwt", "jwt"]),
    }
}

/// Checks the type of a security event (RFC 8417 §2.3), which SSF 1.0 requires.
fn check_event_type(header: &Map) -> Result<(), InvalidToken> {
    let named = member(header, "typ").ok_or(InvalidToken::Header)?;
    check_type(named, &["secevent+jwt"])
}

fn check_type(named: &Value, types: &[&str]) -> Result<(), InvalidToken> {
    match compact::is_type(named, types) {
        true => Ok(()),
        false => Err(InvalidToken::Header),
    }
}

/// Checks issuer, audience and times. Returns `iat`.
fn check_claims(
    claims: &Claims,
    expected: Expected<'_>,
    now: i64,
) -> Result<i64, InvalidStatement> {
    if claims.issuer.as_deref() != Some(expected.issuer) {
        return Err(InvalidToken::Issuer.into());
    }
    let mut audiences = expected.audiences.iter();
    if !audiences.any(|own| claims.audience.contains(own)) {
        return Err(InvalidToken::Audience.into());
    }
    let issued_at = claims.issued_at.ok_or(InvalidStatement::NoTime)?;
    let latest = now.saturating_add(MAX_AHEAD);
    if issued_at > latest {
        return Err(InvalidStatement::Ahead);
    }
    if issued_at < now.saturating_sub(expected.max_age) {
        return Err(InvalidStatement::TooOld);
    }
    if let Some(begin) = claims.not_before
        && begin > latest
    {
        return Err(InvalidToken::NotYetValid.into());
    }
    match claims.expires_at {
        Some(end) if now >= end.saturating_add(MAX_AHEAD) => Err(InvalidToken::Expired.into()),
        _ => Ok(issued_at),
    }
}

/// Reads the user and the session of a logout token (Back-Channel Logout §2.4, §2.6).
fn logged_out(members: &Map) -> Result<Ended, InvalidStatement> {
    // With any value: `null` is a nonce claim too.
    if members.contains_key("nonce") {
        return Err(InvalidStatement::Nonce);
    }
    if !matches!(events(members)?.get(LOGOUT), Some(Value::Object(_))) {
        return Err(InvalidStatement::Events);
    }
    let user = name(members, "sub")?;
    match name(members, "sid")? {
        Some(session) => Ok(Ended::Session { session, user }),
        None => user.map(Ended::User).ok_or(InvalidStatement::Subject),
    }
}

/// Reads the events of Shared Signals that end sessions. Other events have no effect here.
fn ended(members: &Map, issuer: &str) -> Result<Vec<Ended>, InvalidStatement> {
    let mut all = Vec::new();
    for (event, content) in events(members)? {
        let is_of_session = event == SESSION_EVENT;
        // An event of another kind ends nothing, and is no error.
        if !is_of_session && !USER_EVENTS.contains(&event.as_str()) {
            continue;
        }
        // Drafts before SSF 1.0 have the subject in the event.
        let subject = member(members, "sub_id").or_else(|| content.get("subject"));
        let Some(Value::Object(subject)) = subject else {
            return Err(InvalidStatement::Subject);
        };
        let ended = Subject::read(subject, issuer)?.ended_by(is_of_session)?;
        // Several events may name the same user or session.
        if !all.contains(&ended) {
            all.push(ended);
        }
    }
    Ok(all)
}

/// The subject of an event (RFC 9493, SSF 1.0 §3).
#[derive(Default)]
struct Subject {
    user: Option<String>,
    session: Option<String>,
    /// A text whose meaning depends on the event.
    opaque: Option<String>,
}

impl Subject {
    fn read(members: &Map, issuer: &str) -> Result<Self, InvalidStatement> {
        if !matches!(format(members), Some("complex") | None) {
            return Self::read_simple(members, issuer);
        }
        let part = |name| member(members, name).and_then(Value::as_object);
        let mut subject = Self::default();
        // Without a user, as with a mail address in its place, the session can still end.
        if let Some(Ok(user)) = part("user").map(|user| Self::read_simple(user, issuer)) {
            subject.user = user.user.or(user.opaque);
        }
        if let Some(session) = part("session") {
            let session = Self::read_simple(session, issuer)?;
            subject.session = session.opaque.or(session.user);
        }
        Ok(subject)
    }

    /// Reads a subject that may be a part of a complex one.
    fn read_simple(members: &Map, issuer: &str) -> Result<Self, InvalidStatement> {
        if format(members) != Some("aliases") {
            return Self::read_name(members, issuer);
        }
        // All of them name the same: the first of this issuer counts, else the first opaque one.
        let Some(Value::Array(names)) = member(members, "identifiers") else {
            return Err(InvalidStatement::Subject);
        };
        let names = names.iter().filter_map(Value::as_object);
        let mut names = names.filter_map(|name| Self::read_name(name, issuer).ok());
        let first = names.next().ok_or(InvalidStatement::Subject)?;
        match first.user {
            Some(_) => Ok(first),
            None => Ok(names.find(|name| name.user.is_some()).unwrap_or(first)),
        }
    }

    fn read_name(members: &Map, issuer: &str) -> Result<Self, InvalidStatement> {
        let mut subject = Self::default();
        match format(members) {
            Some("iss_sub" | "iss-sub") => subject.user = user_of(members, issuer)?,
            Some("opaque") => subject.opaque = name(members, "id")?,
            _ => return Err(InvalidStatement::Subject),
        }
        Ok(subject)
    }

    fn ended_by(self, is_of_session: bool) -> Result<Ended, InvalidStatement> {
        // An opaque id means what the event is about: a session, or a user.
        let (user, session) = if is_of_session {
            (self.user, self.session.or(self.opaque))
        } else {
            (self.user.or(self.opaque), None)
        };
        match (session, user) {
            (Some(session), user) => Ok(Ended::Session { session, user }),
            (None, Some(user)) => Ok(Ended::User(user)),
            (None, None) => Err(InvalidStatement::Subject),
        }
    }
}

/// Returns the format of a subject, which drafts before RFC 9493 call its type.
fn format(members: &Map) -> Option<&str> {
    let format = member(members, "format").or_else(|| member(members, "subject_type"));
    format.and_then(Value::as_str)
}

/// Returns the `sub` of a subject at this issuer.
fn user_of(members: &Map, issuer: &str) -> Result<Option<String>, InvalidStatement> {
    match name(members, "iss")? {
        // An issuer may end only the sessions of its own users.
        Some(named) if named == issuer => name(members, "sub"),
        _ => Err(InvalidStatement::Subject),
    }
}

fn events(members: &Map) -> Result<&Map, InvalidStatement> {
    let events = members.get("events").and_then(Value::as_object);
    events.ok_or(InvalidStatement::Events)
}

/// Returns a member that is an id: a text that is not empty, or an integer as in the tokens of some issuers.
fn name(members: &Map, name: &str) -> Result<Option<String>, InvalidStatement> {
    match member(members, name) {
        None => Ok(None),
        Some(id) => match id.name() {
            Some(id) => Ok(Some(id.to_owned())),
            None => Err(InvalidStatement::Subject),
        },
    }
}

#[cfg(test)]
mod tests;
