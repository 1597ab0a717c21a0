//! Explains requests, for the admin port and for the command.

pub(crate) mod request;
mod upstream_preview;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::extract::{DefaultBodyLimit, State};
use axum::routing::post;
use axum::{Json, Router};
use bytes::BytesMut;
use postern_contract::explanation::Explanation;
use postern_contract::rejection::Rejection;
use postern_process::clock::unix_seconds;
use postern_process::command_line;
use postern_token::observer::Observer;

use self::request::ExplainRequest;
use self::upstream_preview::{text_of, without_secrets, without_tokens};
use crate::cli::Cli;
use crate::config::live::{CurrentRules, Rules};
use crate::decision::decided::{Decision, Rejected};
use crate::decision::forward::Forward;
use crate::decision::policy::AuthPolicy;
use crate::identity::client::Client;
use crate::issuers::issuer_keys::IssuerKeys;
use crate::telemetry::outcome::Outcome;
use crate::telemetry::request_id::RequestIds;
use crate::upstream::connections::conduct::Reuse;
use crate::upstream::service_request::ServiceRequest;
use crate::upstream::{Protocol, Upstream, errors};
use postern_http::request::kind::RequestKind;
use postern_http::request::received::{self, ReceivedHead};

pub(crate) const PATH: &str = "/explain";
/// The size of the largest header block, in JSON.
pub(crate) const MAX_BODY_BYTES: usize = 128 * 1024;

/// Authorizes requests as the proxy does, and reports each check.
#[derive(Debug)]
pub(crate) struct Explainer {
    pub(crate) rules: Arc<CurrentRules>,
    pub(crate) keys: Arc<IssuerKeys>,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) request_ids: bool,
    /// This machine, as a client of the public port.
    pub(crate) client: Client,
}

impl Explainer {
    /// Returns `POST /explain`.
    pub(crate) fn routes(self) -> Router {
        Router::new()
            .route(PATH, post(explain))
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .with_state(Arc::new(self))
    }

    /// Explains a request.
    pub(crate) fn explain(&self, request: &ExplainRequest, now: SystemTime) -> Explanation {
        let mut explanation = Explanation {
            at: request.at.unwrap_or_else(|| unix_seconds(now)),
            ..Explanation::default()
        };
        let line = request
            .head
            .lines()
            .next()
            .unwrap_or_default()
            .trim_end_matches(" HTTP/1.1");
        explanation.learned("request", without_tokens(line));
        let decided = match read(request.head.as_bytes()) {
            Ok(head) => self.decide(&head, &mut explanation),
            Err(rejection) => explanation.check("framing", Err(rejection)),
        };
        let outcome = decided.unwrap_or_else(Outcome::Rejected);
        explanation.conclude(outcome.as_str(), outcome.rejection());
        explanation
    }

    fn decide(
        &self,
        received: &ReceivedHead,
        explanation: &mut Explanation,
    ) -> Result<Outcome, Rejection> {
        let rules = self.rules.load();
        let policy = &rules.auth_policy;
        let decision = self.authorize(policy, received, explanation);
        if let Some(token) = policy.token(received) {
            explanation.show_token(token.as_str());
        }
        self.show_keys(policy, received, explanation);
        let forward = match decision.map_err(|rejected| rejected.rejection)? {
            Decision::Respond(_) | Decision::Preflight => return Ok(Outcome::Responded),
            Decision::Forward(forward) => forward,
        };
        let head = match self.head_for_service(received, &forward, &rules) {
            Ok(head) => head,
            Err(rejection) => return explanation.check("framing", Err(rejection)),
        };
        explanation.skipped("service", "the service itself gets nothing");
        for line in head {
            explanation.learned("service", line);
        }
        Ok(forward.outcome())
    }

    /// Decides as the proxy does, and notes the cause of a rejection.
    fn authorize(
        &self,
        policy: &AuthPolicy,
        received: &ReceivedHead,
        explanation: &mut Explanation,
    ) -> Result<Decision, Rejected> {
        let (keys, at) = (self.keys.as_of(Instant::now()), explanation.at);
        let decision = policy.authorize_observed(received, &self.client, keys, at, explanation);
        let Err(mut rejected) = decision else {
            return decision;
        };
        if let Some(cause) = policy.cause(rejected.rejection, received) {
            explanation.facts.insert("found".to_owned(), vec![cause]);
        }
        if rejected.rejection == Rejection::TokenKeyUnknown {
            rejected = self.after_fetch(policy, received).into();
        }
        // As the proxy decides in report-only mode; the checks so far stay as they are.
        policy.forward_if_reporting(rejected, received, at)
    }

    /// Shows the keys of the token's issuer, also keys that are too old to be trusted.
    fn show_keys(
        &self,
        policy: &AuthPolicy,
        received: &ReceivedHead,
        explanation: &mut Explanation,
    ) {
        let issuer = match policy.issuers.only() {
            Some(only) => Some(only),
            None => policy.token_and_issuer(received).map(|(_, named)| named),
        };
        let Some(keys) = issuer.and_then(|issuer| self.keys.get(issuer.key_set)) else {
            return explanation.show_keys(None, None);
        };
        match keys.load().as_deref() {
            Some(state) => {
                let age = state.age(Instant::now()).as_secs();
                explanation.show_keys(Some(state.keys()), Some(age));
            }
            None => explanation.show_keys(None, None),
        }
        if let Some(failed) = keys.failed() {
            explanation.learned("keys", format!("the last fetch failed: {}", failed.reason));
        }
    }

    /// Returns the rejection of a request that would wait for a fetch, by the end of the last one.
    fn after_fetch(&self, policy: &AuthPolicy, received: &ReceivedHead) -> Rejection {
        if let Some((token, issuer)) = policy.token_and_issuer(received)
            && let Some(keys) = self.keys.get(issuer.key_set)
            && keys.is_fetch_in_vain(token, Instant::now())
        {
            return Rejection::AuthKeysUnavailable;
        }
        Rejection::TokenKeyUnknown
    }

    /// Returns the head that the service gets, in the version that it speaks or chose last.
    ///
    /// # Errors
    /// The rejection of a head that this version does not have.
    fn head_for_service(
        &self,
        received: &ReceivedHead,
        forward: &Forward,
        rules: &Rules,
    ) -> Result<Vec<String>, Rejection> {
        let speaks_http_1 = self.upstream.speaks_http_1();
        let request = ServiceRequest {
            received,
            forward,
            client: &self.client,
            ids: &RequestIds::from_headers(&received.headers, self.request_ids),
            auth_policy: &rules.auth_policy,
            policy: rules.upstream_request,
            is_continued: received.expects_continue() && forward.is_held(received, speaks_http_1),
        };
        let text = if speaks_http_1 || forward.kind == RequestKind::WebSocket {
            // `WithoutBody`: the body is unknown here, and may be a request.
            let (head, _) = request.http_1_head(Reuse::WithoutBody);
            String::from_utf8_lossy(&head).into_owned()
        } else {
            // The head of an HTTP/2 stream names the scheme, which is https only over TLS.
            let over_tls = self.upstream.address().protocol == Protocol::Https;
            match request.stream_head(over_tls) {
                Ok(head) => text_of(&head),
                Err(error) => {
                    return Err(errors::rejection_of(&error).unwrap_or(Rejection::Internal));
                }
            }
        };
        let cookie = rules.auth_policy.interceptor.sources().cookie.as_deref();
        Ok(text
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| without_secrets(line, cookie))
            .collect())
    }
}

/// Reads a whole head.
fn read(raw: &[u8]) -> Result<ReceivedHead, Rejection> {
    received::take(&mut BytesMut::from(raw))?.ok_or(Rejection::RequestMalformed)
}

/// Explains a request, in a JSON body: a page of another site cannot send one without a preflight.
async fn explain(
    State(explainer): State<Arc<Explainer>>,
    Json(request): Json<ExplainRequest>,
) -> Json<Explanation> {
    let mut explanation = explainer.explain(&request, SystemTime::now());
    for found in explanation.facts.get_mut("found").into_iter().flatten() {
        *found = command_line::sourced::<Cli>(found);
    }
    Json(explanation)
}
