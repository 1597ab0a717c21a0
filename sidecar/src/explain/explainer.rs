//! Puts a question before the judge, for the admin port and for the command.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use contract::explanation::{Explanation, KeyFacts, Verdict};
use http::{HeaderMap, StatusCode, Version, header};
use process::clock::unix_seconds;

use super::question::{NoRequest, Question, raw_head, request_of};
use super::service_lines::{lines_of, without_hop_by_hop};
use crate::admission::{Admission, RequestHead, Wire};
use crate::forwarded::Client;
use crate::keys::current::{CurrentKeys, KeyState};
use crate::marks::Marking;
use crate::rules::CurrentRules;

pub(super) const PATH: &str = "/explain";
pub(super) const JSON: &str = "application/json";
/// As large as a header block may be, in JSON.
pub(super) const MAX_BYTES: usize = 128 * 1024;
/// The request is taken as sent by who asks, on this machine.
const ASKER: Client = Client {
    address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    tls: false,
};

/// Judges questions as the proxy judges requests.
#[derive(Debug, Clone)]
pub(crate) struct Explainer {
    pub(crate) rules: Arc<CurrentRules>,
    pub(crate) keys: Arc<CurrentKeys>,
    pub(crate) marking: Marking,
}

impl Explainer {
    /// `POST /explain`.
    pub(crate) fn routes(self) -> Router {
        Router::new()
            .route(PATH, post(explain))
            .layer(DefaultBodyLimit::max(MAX_BYTES))
            .with_state(Arc::new(self))
    }

    /// # Errors
    /// Where the question cannot be put into a request at all: which part of it.
    pub(super) fn explain(
        &self,
        question: &Question,
        now: SystemTime,
    ) -> Result<Explanation, NoRequest> {
        let at = question.at.unwrap_or_else(|| unix_seconds(now));
        let request = request_of(question)?;
        let raw = raw_head(question);
        let mut explanation = Explanation {
            at,
            request: Some(format!("{} {}", question.method, question.target)),
            ..Explanation::default()
        };
        let head = RequestHead {
            method: &request.method,
            version: Version::HTTP_11,
            headers: &request.headers,
            wire: Wire::Http1(&raw),
            target_to_send: question.target.as_bytes(),
        };
        let state = self.keys.load();
        let usable = self.keys.usable(state.as_deref(), Instant::now());
        let rules = self.rules.load();
        let admission = rules
            .admission
            .admit_observed(head, usable, at, &mut explanation);
        let token = rules.admission.interceptor.token(&request.headers);
        let token = token.ok().flatten().map(|token| token.as_str().to_owned());
        if let Some(token) = &token {
            explanation.show_token(token);
        }
        explanation.keys = Some(key_facts(state.as_deref()));
        explanation.verdict = match &admission {
            Err(rejection) => Verdict::refused(*rejection),
            Ok(Admission::UserDetails(_) | Admission::Preflight) => Verdict::good("answered"),
            Ok(Admission::Forward(forward)) => Verdict::good(forward.outcome().as_str()),
        };
        if let Ok(Admission::Forward(forward)) = &admission {
            let sources = rules.admission.interceptor.sources();
            let mut head = without_hop_by_hop(request);
            let marks = self.marking.of(&head.headers);
            let prepared = rules.service_head.prepare(
                &mut head,
                Version::HTTP_11,
                forward,
                &marks,
                &rules.admission,
                ASKER,
            );
            explanation.head = prepared
                .ok()
                .map(|()| lines_of(&head, sources.cookie.as_deref()));
        }
        Ok(explanation)
    }
}

fn key_facts(state: Option<&KeyState>) -> KeyFacts {
    state.map_or_else(KeyFacts::default, |state| KeyFacts {
        age_seconds: Some(state.age(Instant::now()).as_secs()),
        generation: Some(state.generation()),
        ..KeyFacts::of(state.keys())
    })
}

async fn explain(
    State(explainer): State<Arc<Explainer>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // A page of a stranger in a browser on this machine cannot send this type unasked.
    if headers
        .get(header::CONTENT_TYPE)
        .is_none_or(|media_type| media_type != JSON)
    {
        return (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send application/json\n",
        )
            .into_response();
    }
    let question = serde_json::from_slice::<Question>(&body).map_err(|_| NoRequest::Question);
    let explanation = question.and_then(|question| explainer.explain(&question, SystemTime::now()));
    match explanation.map(|explanation| serde_json::to_vec(&explanation)) {
        Ok(Ok(json)) => ([(header::CONTENT_TYPE, JSON)], json).into_response(),
        Ok(Err(_)) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    }
}
