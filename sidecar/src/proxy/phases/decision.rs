//! The decision about a request, of every version of HTTP: its permit, a fetch of newer keys, report-only mode
//! and the response to a rejected one.

use std::time::Instant;

use http::HeaderMap;
use pingora::proxy::Session;
use runtime::net::shares::{Holder, Share};
use runtime::process::clock::unix_now;
use wire::rejection::Rejection;

use super::AuthProxy;
use super::context::RequestContext;
use super::downstream_session::address_of;
use crate::auth::authorize::{AuthPolicy, Decision, Forward, Rejected};
use crate::keys::on_demand::OnDemandRefresh;
use crate::proxy::response::LocalResponse;
use crate::request::head::{self, RequestHead};
use crate::telemetry::outcome::Outcome;

/// Next step of a request after the decision.
pub(in crate::proxy) enum Action {
    Forward(Forward, Share),
    Respond(Outcome, LocalResponse),
}

impl AuthProxy {
    /// Decides about the request of a session; waits for a fetch if its token names an unknown key.
    pub(super) async fn decide(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<Decision, Rejected> {
        let rules = &ctx.rules.auth_policy;
        let mut decision = self.authorize_session(session, rules, ctx.began);
        if decision == Err(Rejection::TokenKeyUnknown.into())
            && let Some(fetch) = self.on_demand_fetch_for(session, rules)
        {
            // Its issuer may have a newer key.
            let fetch = fetch.wait(Instant::now());
            let client = Some(self.client_of(session));
            decision = match self.in_flight.while_waiting(client, fetch).await {
                Some(()) => self.authorize_session(session, rules, Instant::now()),
                None => Err(Rejection::ServerBusy.into()),
            };
        }
        if let Err(rejected) = decision {
            decision = head::with_request_head(session.as_downstream(), |head| {
                self.forward_if_reporting(rejected, rules, head)
            });
        }
        ctx.decided = Instant::now();
        self.metrics
            .decided(ctx.decided.saturating_duration_since(ctx.began));
        decision
    }

    /// Takes a permit for an authorized request, from the share of its user or else of `client`, or
    /// prepares our own response.
    pub(in crate::proxy) fn act_on(
        &self,
        decision: Result<Decision, Rejected>,
        client: impl FnOnce() -> Holder,
        rules: &AuthPolicy,
        now: Instant,
    ) -> Action {
        let (outcome, response) = match decision {
            Ok(Decision::Forward(forward)) => {
                let user = forward.verified.as_ref().map(|verified| verified.holder);
                match self.in_flight.take(user.unwrap_or_else(client), now) {
                    Some(permit) => return Action::Forward(forward, permit),
                    None => rejected(Rejection::ServerBusy),
                }
            }
            Ok(Decision::Respond(body)) => (Outcome::Responded, LocalResponse::success(body)),
            Ok(Decision::Preflight) => (Outcome::Responded, LocalResponse::preflight()),
            Err(rejected) => self.reject(&rejected, rules, now),
        };
        Action::Respond(outcome, response)
    }

    /// Decides about a request by the keys at `now`.
    pub(in crate::proxy) fn authorize(
        &self,
        rules: &AuthPolicy,
        head: RequestHead<'_>,
        now: Instant,
    ) -> Result<Decision, Rejected> {
        rules.authorize(head, self.keys.at(now), unix_now())
    }

    /// Returns the fetch of newer keys for the token of a request, from its issuer alone.
    pub(in crate::proxy) fn on_demand_fetch(
        &self,
        rules: &AuthPolicy,
        headers: &HeaderMap,
        opens_websocket: bool,
    ) -> Option<&OnDemandRefresh> {
        let issuer = rules.keys_of_token(headers, opens_websocket)?;
        Some(self.keys.get(issuer)?.on_demand_fetch())
    }

    /// Forwards a rejected request in report-only mode.
    pub(in crate::proxy) fn forward_if_reporting(
        &self,
        rejected: Rejected,
        rules: &AuthPolicy,
        head: RequestHead<'_>,
    ) -> Result<Decision, Rejected> {
        let rule = rules.rule_of(&rejected);
        let decision = rules.forward_if_reporting(rejected, head, unix_now());
        if let (Ok(_), Some(rule)) = (&decision, rule) {
            self.metrics.rule_rejected(&rule.name);
        }
        decision
    }

    fn authorize_session(
        &self,
        session: &Session,
        rules: &AuthPolicy,
        now: Instant,
    ) -> Result<Decision, Rejected> {
        head::with_request_head(session.as_downstream(), |head| {
            self.authorize(rules, head, now)
        })
    }

    fn on_demand_fetch_for(
        &self,
        session: &Session,
        rules: &AuthPolicy,
    ) -> Option<&OnDemandRefresh> {
        // HTTP/2 has no handshake of a WebSocket.
        self.on_demand_fetch(rules, &session.req_header().headers, false)
    }

    /// Returns the client of a session, which holds what no user holds.
    pub(super) fn client_of(&self, session: &Session) -> Holder {
        let headers = &session.req_header().headers;
        Holder::at(self.client_ip(address_of(session), headers))
    }

    /// Rejects a request; without usable keys `Retry-After` is the time of their next fetch.
    fn reject(
        &self,
        request: &Rejected,
        rules: &AuthPolicy,
        now: Instant,
    ) -> (Outcome, LocalResponse) {
        let (outcome, response) = rejected(request.rejection);
        let rule = rules.rule_of(request);
        if let Some(rule) = rule {
            self.metrics.rule_rejected(&rule.name);
        }
        match request.rejection {
            Rejection::InsufficientScope => {
                let scope = rule.map(|rule| rule.requirement.scope.as_slice());
                (outcome, response.required_scope(scope.unwrap_or_default()))
            }
            Rejection::AuthKeysUnavailable
            | Rejection::AuthKeysStale
            | Rejection::RevocationsStale => {
                let seconds = self.keys.seconds_until_next(now);
                (outcome, response.retry_after(seconds))
            }
            _ => (outcome, response),
        }
    }
}

fn rejected(rejection: Rejection) -> (Outcome, LocalResponse) {
    (
        Outcome::Rejected(rejection),
        LocalResponse::rejection(rejection),
    )
}
