//! The laws of tokens: what they say when they are issued, and that servers reject those that have ended.

use std::ops::RangeInclusive;

use http::StatusCode;
use tokio::time::Instant;

use super::Laws;
use crate::model::{MEASURED, TOKEN_LIFETIME, Token, USER};
use crate::world::World;

/// Seconds for which a program accepts an expired token, and some more.
const LEEWAY: i64 = 30 + 2;

/// A server when a client came to it.
#[derive(Debug, Clone, Copy)]
pub struct Visited {
    pub server: usize,
    /// The start of its last poll.
    pub polled: Option<Instant>,
}

impl Laws {
    /// A server has issued a token for this session. `between`: from the request on until the response, by the
    /// store's clock; `None` where the server may have another time, or have issued the token before.
    pub fn issued(&mut self, token: &Token, session: &str, between: Option<RangeInclusive<i64>>) {
        let claims = &token.claims;
        let issued = claims.issued_at.unwrap_or_default();
        let says = (claims.user_id.as_str(), token.expires - issued);
        let is_of_session = claims.session.as_deref().unwrap_or_default() == session;
        self.require(says == (USER, TOKEN_LIFETIME) && is_of_session, || {
            let said = (&claims.session, &claims.user_id, token.expires - issued);
            format!("a token of session {session:?} says {said:?}")
        });
        let is_near = between.as_ref().is_none_or(|between| {
            (between.start() - MEASURED..=between.end() + MEASURED).contains(&issued)
        });
        self.require(is_near, || {
            format!("a token was issued at {issued}, when the store had {between:?}")
        });
    }

    /// A server has responded to a request for the user of a token.
    pub fn user_requested(
        &mut self,
        world: &World,
        visited: Visited,
        token: &Token,
        status: StatusCode,
    ) {
        let (number, is_served) = (visited.server, status == StatusCode::OK);
        let mut ends = self.ends.iter();
        let is_ended = ends.any(|end| end.is_read_by(visited.polled) && end.ends(token));
        self.require(!(is_ended && is_served), || {
            format!("server {number} serves a token that was ended")
        });
        self.require(!is_served || self.may_live(world, token), || {
            format!("server {number} serves a token that has expired")
        });
        let seen = self.keys_seen.get(&token.key).copied();
        let must_serve = !self.sets_clocks
            && seen.is_some()
            && visited.polled >= seen
            && self.must_count(world, token)
            && !self.may_be_revoked(&token.key);
        let is_away = status == StatusCode::SERVICE_UNAVAILABLE;
        self.require(!must_serve || is_served || is_away, || {
            format!(
                "server {number} knows the key {}, and says {status}",
                token.key
            )
        });
    }

    /// Returns false for a token that has expired by every clock.
    pub(super) fn may_live(&self, world: &World, token: &Token) -> bool {
        self.sets_clocks || world.sky.world_now() <= token.expires + LEEWAY
    }
}
