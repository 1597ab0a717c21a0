//! The next step of a request after its decision: a permit, a fetch of newer keys, report-only mode, or
//! the response to a rejected one.

use std::time::Instant;

use http::HeaderMap;
use runtime::net::shares::{Holder, Share};
use runtime::process::clock::unix_now;
use wire::rejection::Rejection;
use wire::token::bearer::Bearer;

use crate::app::App;
use crate::decision::authorize::{AuthPolicy, Decision, Forward, Rejected};
use crate::exchange::response::LocalResponse;
use crate::issuers::on_demand::OnDemandFetch;
use crate::request::received::ReceivedHead;
use crate::telemetry::outcome::Outcome;

/// Next step of a request after the decision.
pub(super) enum Action {
    Forward(Forward, Share),
    Respond(Outcome, LocalResponse),
}

impl App {
    /// Takes a permit for an authorized request, from the share of its user or else of `client`, or
    /// prepares our own response.
    pub(super) fn act_on(
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
    pub(super) fn authorize(
        &self,
        rules: &AuthPolicy,
        head: &ReceivedHead,
        now: Instant,
    ) -> Result<Decision, Rejected> {
        rules.authorize(head, self.keys.at(now), unix_now())
    }

    /// Returns the token of a request, and the fetch of newer keys from its issuer alone.
    pub(super) fn on_demand<'a>(
        &self,
        rules: &AuthPolicy,
        headers: &'a HeaderMap,
        opens_websocket: bool,
    ) -> Option<(Bearer<'a>, &OnDemandFetch)> {
        let (token, issuer) = rules.token_and_keys(headers, opens_websocket)?;
        Some((token, self.keys.get(issuer)?.on_demand()))
    }

    /// Forwards a rejected request in report-only mode.
    pub(super) fn forward_if_reporting(
        &self,
        rejected: Rejected,
        rules: &AuthPolicy,
        head: &ReceivedHead,
    ) -> Result<Decision, Rejected> {
        let rule = rules.rule_of(&rejected);
        let decision = rules.forward_if_reporting(rejected, head, unix_now());
        if let (Ok(_), Some(rule)) = (&decision, rule) {
            self.metrics.rule_rejected(&rule.name);
        }
        decision
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
