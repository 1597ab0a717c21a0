//! The decision about a request, with a fetch of newer keys where it needs one, and its next step: a
//! permit, or the response to a rejected request.

use std::time::Instant;

use runtime::net::shares::Share;
use runtime::process::clock::unix_now;
use wire::rejection::Rejection;

use super::request::Request;
use crate::app::App;
use crate::decision::authorize::{Decision, Rejected};
use crate::decision::forward::Forward;
use crate::exchange::response::LocalResponse;
use crate::telemetry::outcome::Outcome;

/// Next step of a request after the decision.
pub(super) enum Action {
    Forward(Forward, Share),
    Respond(Outcome, LocalResponse),
}

impl App {
    /// Decides about a request; waits for a fetch if the token names an unknown key. A key that a
    /// later fetch may still bring is no reason to throw the token away, unless its client invents
    /// keys: a 503 for the asking makes gateways eject the service.
    pub(super) async fn decide(&self, request: &Request<'_>) -> Result<Decision, Rejected> {
        let (rules, head) = (&request.rules.auth_policy, &request.head);
        let decide_at = |now| rules.authorize(head, self.keys.at(now), unix_now());
        let unknown = Err(Rejection::TokenKeyUnknown.into());
        let mut decision = decide_at(request.began);
        if decision == unknown
            && let Some((token, issuer)) = rules.token_and_issuer(head)
            && let Some(keys) = self.keys.get(issuer.keys)
        {
            // From the token's issuer alone; once more behind a fetch that had begun before.
            let client = request.holder(self);
            for _ in 0..2 {
                let waited = keys.on_demand().wait(token, client, Instant::now());
                let Some(waited) = self.in_flight.while_waiting(Some(client), waited).await else {
                    decision = Err(Rejection::ServerBusy.into());
                    break;
                };
                decision = decide_at(Instant::now());
                match waited {
                    _ if decision != unknown => break,
                    Some(true) => break,
                    Some(false) => {
                        decision = Err(Rejection::AuthKeysUnavailable.into());
                        break;
                    }
                    None => {}
                }
            }
        }
        let Err(rejected) = decision else {
            return decision;
        };
        // In report-only mode it is forwarded all the same.
        let rule = rules.rule_of(&rejected);
        if let Some(rule) = rule {
            self.metrics.rule_rejected(&rule.name);
        }
        rules.forward_if_reporting(rejected, head, unix_now())
    }

    /// Takes a permit for an authorized request, from the share of its user or else of its client, or
    /// prepares our own response.
    pub(super) async fn act_on(
        &self,
        decision: Result<Decision, Rejected>,
        request: &Request<'_>,
        now: Instant,
    ) -> Action {
        let (outcome, response) = match decision {
            Ok(Decision::Forward(forward)) => {
                let user = forward.verified.as_ref().map(|verified| verified.holder);
                let holder = user.unwrap_or_else(|| request.holder(self));
                match self.in_flight.take(holder).await {
                    Some(permit) => return Action::Forward(forward, permit),
                    None => self.reject(&Rejection::ServerBusy.into(), request, now),
                }
            }
            Ok(Decision::Respond(body)) => (Outcome::Responded, LocalResponse::success(body)),
            Ok(Decision::Preflight) => (Outcome::Responded, LocalResponse::preflight()),
            Err(rejected) => self.reject(&rejected, request, now),
        };
        let response = match &request.rules.auth_policy.resource {
            Some(resource) => response.challenging(resource.challenge()),
            None => response,
        };
        Action::Respond(outcome, response)
    }

    /// Rejects a request; without usable keys `Retry-After` is the time of their next fetch.
    fn reject(
        &self,
        rejected: &Rejected,
        request: &Request<'_>,
        now: Instant,
    ) -> (Outcome, LocalResponse) {
        let rejection = rejected.rejection;
        let response = LocalResponse::rejection(rejection);
        let response = match rejection {
            Rejection::InsufficientScope => {
                let rule = request.rules.auth_policy.rule_of(rejected);
                let scopes = rule.map(|rule| rule.requirement.scope.join(" "));
                response.challenging(&format!("scope=\"{}\"", scopes.unwrap_or_default()))
            }
            Rejection::AuthKeysUnavailable
            | Rejection::AuthKeysStale
            | Rejection::RevocationsStale => {
                response.retry_after(self.keys.seconds_until_next(now))
            }
            _ => response,
        };
        (Outcome::Rejected(rejection), response)
    }
}
