//! The decision about a request, with a fetch of newer keys where it needs one, and its next step: a
//! permit, or the response to a rejected request.

use std::time::Instant;

use postern_contract::rejection::Rejection;
use postern_process::clock::unix_now;
use postern_transport::net::shares::Share;

use super::request::Request;
use crate::decision::after_fetch::decide_after_fetch;
use crate::decision::decided::{Decision, Rejected};
use crate::decision::forward::Forward;
use crate::exchange::app::App;
use crate::exchange::response::LocalResponse;
use crate::telemetry::outcome::Outcome;

/// Next step of a request after the decision.
pub(super) enum Action {
    Forward(Forward, Share),
    /// With the way of an authorized request that gets no permit.
    Respond(Outcome, LocalResponse, Option<Forward>),
}

impl App {
    /// Decides about a request; waits for a fetch if the token names an unknown key. A key that a later fetch
    /// may still bring gives a 503, so that the client keeps its token. A client that invents keys gets a
    /// 401: with a 503 for each of its requests it could make gateways eject the service. Returns the name of
    /// the rule that does not hold, too.
    pub(super) async fn decide(
        &self,
        request: &Request<'_>,
    ) -> (Result<Decision, Rejected>, Option<String>) {
        let mut decision = self.decide_at(request, request.began);
        // The issuer may have a new key that this process has not fetched yet.
        if decision == Err(Rejection::TokenKeyUnknown.into()) {
            decision = self.decide_by_newer_keys(request).await;
        }
        let Err(rejected) = decision else {
            return (decision, None);
        };
        let rules = &request.rules.auth_policy;
        let rule = rules.rule_of(&rejected).map(|rule| rule.name.clone());
        // Counted in report-only mode too, in which the request is forwarded all the same.
        if let Some(rule) = &rule {
            self.metrics.rule_rejected(rule);
        }
        let decision = rules.forward_if_reporting(rejected, &request.head, unix_now());
        (decision, rule)
    }

    fn decide_at(&self, request: &Request<'_>, now: Instant) -> Result<Decision, Rejected> {
        request.rules.auth_policy.authorize(
            &request.head,
            request.client,
            self.keys.as_of(now),
            unix_now(),
        )
    }

    async fn decide_by_newer_keys(&self, request: &Request<'_>) -> Result<Decision, Rejected> {
        let unknown = Err(Rejection::TokenKeyUnknown.into());
        let Some((token, issuer)) = request.rules.auth_policy.token_and_issuer(&request.head)
        else {
            return unknown;
        };
        let Some(keys) = self.keys.get(issuer.key_set) else {
            return unknown;
        };
        let client = request.holder(self);
        // A request that waits for a fetch takes a permit from the share of its client.
        let wait = || {
            let fetch = keys.on_demand().wait(token, client, Instant::now());
            self.in_flight.while_waiting(Some(client), fetch)
        };
        // As of now and not as of the start of the request: the keys were fetched in between.
        decide_after_fetch(wait, || self.decide_at(request, Instant::now())).await
    }

    /// Takes a permit for an authorized request, from the share of its user or else of its client, or
    /// prepares our own response.
    pub(super) async fn act_on(
        &self,
        decision: Result<Decision, Rejected>,
        request: &Request<'_>,
        now: Instant,
    ) -> Action {
        let mut declined = None;
        let (outcome, response) = match decision {
            Ok(Decision::Forward(forward)) => {
                // A user has one share, whatever addresses the requests come from.
                let holder = forward
                    .verified
                    .as_ref()
                    .map(|verified| verified.holder)
                    .unwrap_or_else(|| request.holder(self));
                if let Some(permit) = self.in_flight.take(holder).await {
                    return Action::Forward(forward, permit);
                }
                declined = Some(forward);
                self.reject(&Rejection::ServerBusy.into(), request, now)
            }
            Ok(Decision::Respond(body)) => (Outcome::Responded, LocalResponse::success(body)),
            Ok(Decision::Preflight) => (Outcome::Responded, LocalResponse::preflight()),
            Err(rejected) => self.reject(&rejected, request, now),
        };
        Action::Respond(outcome, response, declined)
    }

    /// Rejects a request; without usable keys `Retry-After` is the time of their next fetch.
    fn reject(
        &self,
        rejected: &Rejected,
        request: &Request<'_>,
        now: Instant,
    ) -> (Outcome, LocalResponse) {
        let rejection = rejected.rejection;
        let policy = &request.rules.auth_policy;
        let mut response = LocalResponse::rejection(rejection);
        for parameter in policy.challenge_parameters(rejected, &request.head) {
            response = response.challenging(&parameter);
        }
        if policy.interceptor.sources().takes_proofs {
            response = response.challenging_for_proofs(rejection);
        }
        // Clients come again when the sidecar may have keys, and not before.
        if let Rejection::AuthKeysUnavailable
        | Rejection::AuthKeysStale
        | Rejection::RevocationsStale = rejection
        {
            response = response.retry_after(self.keys.seconds_until_next(now));
        }
        (Outcome::Rejected(rejection), response)
    }
}
