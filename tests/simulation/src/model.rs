//! The knowledge of the clients and administrators of a world: tokens and sessions that they were given, and
//! ends that were confirmed to them.

use std::collections::{BTreeMap, BTreeSet};

use auth_server::simulation::{FOREIGN_ISSUER, Server};
use postern_token::claims::Claims;
use postern_token::unverified::DecodedToken;
use sidecar::simulation::Sidecar;
use tokio::time::Instant;

/// Seconds by which the clock of a server may differ that it has compared with the store's.
pub const MEASURED: i64 = 2;

/// Seconds for which a token is valid, of the settings of the servers.
pub const TOKEN_LIFETIME: i64 = 600;

/// The id of the built-in user.
pub const USER: &str = "1";

/// An access token that a client was given.
#[derive(Debug, Clone)]
pub struct Token {
    pub text: String,
    pub claims: Claims,
    /// The id of the key that signed it.
    pub key: String,
    pub expires: i64,
    /// The time of the login, for a token that came by a refresh.
    pub login: Option<i64>,
}

impl Token {
    /// Returns false for a token that has expired or is about to, and for one of a server whose clock was
    /// set: until its next poll it takes that for the time.
    #[must_use]
    pub fn is_of_this_time(&self, now: i64) -> bool {
        let is_issued = self
            .claims
            .issued_at
            .is_some_and(|issued| issued <= now + 25);
        is_issued && now + 60 < self.expires
    }

    /// Reads a token, which is not verified here.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let decoded = DecodedToken::decode(text)?;
        let text_of = |name: &str| decoded.claims.get(name)?.as_str().map(str::to_owned);
        let number = |name: &str| {
            let number = serde_json::to_string(decoded.claims.get(name)?).ok()?;
            number.parse().ok()
        };
        Some(Self {
            key: decoded.header.get("kid")?.as_str()?.to_owned(),
            expires: number("exp")?,
            login: None,
            claims: Claims {
                user_id: text_of("userId")?,
                issued_at: number("iat"),
                token_id: text_of("jti"),
                session: text_of("sid"),
                ..Claims::default()
            },
            text: text.to_owned(),
        })
    }
}

/// Returns the name of a session at another issuer.
#[must_use]
pub fn foreign_session(number: usize) -> String {
    format!("foreign {number}")
}

/// Returns a token of that issuer that no client presents: servers and sidecars compare it with their lists.
#[must_use]
pub fn foreign_token(number: usize) -> Token {
    Token {
        text: String::new(),
        key: String::new(),
        expires: i64::MAX,
        login: None,
        claims: Claims {
            issuer: Some(FOREIGN_ISSUER.to_owned()),
            session: Some(foreign_session(number)),
            mapped_user: Some(Box::default()),
            ..Claims::default()
        },
    }
}

/// Returns a token that no client presents, of the time up to which an end by time ends all: clients may have none.
#[must_use]
pub fn token_of(user: &str, issued_at: i64) -> Token {
    Token {
        text: String::new(),
        key: String::new(),
        expires: issued_at + TOKEN_LIFETIME,
        login: None,
        claims: Claims {
            user_id: user.to_owned(),
            issued_at: Some(issued_at),
            session: Some(String::new()),
            ..Claims::default()
        },
    }
}

/// A session, as its client knows it.
#[derive(Debug, Default)]
pub struct Session {
    /// `sid` of its access tokens.
    pub id: String,
    /// The refresh tokens that were received, each with that moment.
    pub received: Vec<(String, Instant)>,
    /// Each refresh token that was used, with the one that came for it.
    pub successors: BTreeMap<String, String>,
    /// The first use of the latest refresh token, where that has failed.
    pub failed: Option<Instant>,
    /// The moment when a server confirmed its end.
    pub over: Option<Instant>,
    /// False once its record may have been lost.
    pub is_safe: bool,
}

impl Session {
    /// Returns true where a client knows no later refresh token.
    #[must_use]
    pub fn has_latest(&self, token: &str) -> bool {
        self.received.last().is_some_and(|(last, _)| last == token)
    }
}

/// The object of an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Session(String),
    /// Tokens that were issued up to this time, in seconds since the epoch.
    Everyone(i64),
    User(String, i64),
    Key(String),
}

impl Ended {
    #[must_use]
    pub const fn is_key(&self) -> bool {
        matches!(self, Self::Key(_))
    }

    /// Returns true for a token that has to be rejected.
    #[must_use]
    pub fn ends(&self, token: &Token) -> bool {
        let is_before = |time: i64| token.claims.issued_at.is_some_and(|issued| issued <= time);
        match self {
            Self::Session(id) => token.claims.session.as_ref() == Some(id),
            Self::Everyone(time) => is_before(*time),
            Self::User(id, time) => token.claims.user_id == *id && is_before(*time),
            Self::Key(id) => token.key == *id,
        }
    }
}

/// A requested end.
#[derive(Debug, Clone)]
pub struct End {
    pub ended: Ended,
    /// The moment of the confirmation; `None` where there was none.
    pub confirmed: Option<Instant>,
    /// The server that confirmed it, while it lives.
    pub confirmed_by: Option<usize>,
    /// The store's time when the request was over, confirmed or not: an end by time ends nothing that began later.
    pub over: Option<i64>,
    pub keeps: Keeps,
    /// Servers have written it back, perhaps in a commit that was not confirmed.
    pub is_restored: bool,
}

/// Where an end is kept, once the store has lost it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keeps {
    /// The store has it.
    Store,
    /// These servers have it in memory, and write it back at their next poll.
    Servers(BTreeSet<usize>),
    /// It is gone, as documented for a store that loses what it has confirmed.
    Lost,
}

impl End {
    /// Returns true where the store keeps the end, and a poll that began at this moment has read it.
    #[must_use]
    pub fn is_read_by(&self, poll: Option<Instant>) -> bool {
        let is_read = self.confirmed.is_some_and(|at| Some(at) <= poll);
        is_read && self.keeps == Keeps::Store
    }

    /// Returns true for a token that has to be rejected. An end by time also ends every token that came by a refresh of
    /// a former login. Servers' clocks differ by seconds, so this leaves out what was issued as the commit ended.
    #[must_use]
    pub fn ends(&self, token: &Token) -> bool {
        let (Some(login), Some(issued), Some(over)) =
            (token.login, token.claims.issued_at, self.over)
        else {
            return self.ended.ends(token);
        };
        let meanwhile = match &self.ended {
            Ended::Everyone(time) | Ended::User(_, time) => {
                let near = over - MEASURED + 1..=over + MEASURED;
                login <= *time && !near.contains(&issued)
            }
            _ => false,
        };
        meanwhile || self.ended.ends(token)
    }

    /// Returns true for a token that may be rejected since the end was requested; `began`: the time of its login.
    #[must_use]
    pub fn may_end(&self, token: &Token, began: i64) -> bool {
        match self.ended {
            Ended::Everyone(_) | Ended::User(..) => {
                self.over.is_none_or(|over| began <= over + MEASURED)
            }
            _ => self.ended.ends(token),
        }
    }

    /// Returns true where a sidecar rejects these tokens, which it ends, or has dropped its key.
    #[must_use]
    pub fn is_known_to(&self, sidecar: &Sidecar, ended: &[&Token]) -> bool {
        match &self.ended {
            Ended::Key(id) => !sidecar.keys().contains(id),
            _ => ended.iter().all(|token| sidecar.revokes(&token.claims)),
        }
    }

    /// Returns true for an end in force at a server: in its list, or not among its keys.
    #[must_use]
    pub fn is_in_force(&self, server: &Server, tokens: &[Token]) -> bool {
        if let Ended::Key(id) = &self.ended {
            return server.keys().is_some_and(|keys| keys.revoked.contains(id));
        }
        let mut ended = tokens.iter().filter(|token| self.ends(token));
        ended.all(|token| server.revokes(&token.claims))
    }
}
