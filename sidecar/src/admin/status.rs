//! The status page on the admin port: readiness, figures, a form for explanations, the pass-list
//! lines of report-only mode and the configuration.
//!
//! It renders what `/readyz`, `/metrics`, `/explain`, `/suggest` and `check` produce, and has no
//! facts of its own. The admin port serves it to loopback peers only.

mod page;

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Form, Router};
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;
use runtime::admin::health::Health;
use runtime::process::clock::unix_now;
use serde::Deserialize;

use self::page::Page;
use super::explain::request::ExplainRequest;
use super::explain::{Explainer, MAX_BODY_BYTES};
use super::suggest::Suggestions;

/// Content policy: no script, no resource but the style sheet of the page, no framing.
const PAGE_HEADERS: [(HeaderName, HeaderValue); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
    ),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        header::REFERRER_POLICY,
        // With `no-referrer` browsers send the form with `Origin: null`.
        HeaderValue::from_static("same-origin"),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

/// The metrics on the page; series that are 0 are left out.
const FIGURES: [&str; 6] = [
    "postern_sidecar_requests_total",
    "postern_sidecar_requests_in_flight",
    "postern_sidecar_connections",
    "postern_sidecar_rule_refusals_total",
    "postern_sidecar_key_age_seconds",
    "postern_sidecar_config_restart_needed",
];

/// The sources of the page.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) health: Health,
    pub(crate) metrics: Arc<Registry>,
    pub(crate) explainer: Explainer,
    pub(crate) suggestions: Suggestions,
}

/// The form of the page: a request to explain.
#[derive(Debug, Deserialize)]
struct Question {
    method: String,
    target: String,
    /// One field in each line.
    headers: String,
}

impl Status {
    fn page(&self, explanation: Option<String>) -> Response {
        let rules = self.explainer.rules.load();
        html(&Page {
            context: rules.auth_policy.interceptor.context().as_str(),
            reports_until: rules.auth_policy.reports_until(unix_now()),
            ready: self.health.is_ready(),
            conditions: self.health.conditions(),
            figures: figures(&self.metrics),
            explanation,
            suggestion: self.suggestions.text(),
            settings: &rules.settings,
        })
    }

    fn explain(&self, question: &Question) -> String {
        let lines = question.headers.lines();
        let request = ExplainRequest::of_lines(&question.method, &question.target, lines, None);
        let explained =
            request.and_then(|request| self.explainer.explain(&request, SystemTime::now()));
        match explained {
            Ok(explanation) => explanation.to_string(),
            Err(why) => why.to_string(),
        }
    }
}

/// Returns the series that are on the page, with their values.
fn figures(registry: &Registry) -> Vec<(String, String)> {
    let mut text = String::new();
    // Cannot fail: a string takes every line.
    let _ = encode_registry(&mut text, registry);
    let is_figure = |series: &str| FIGURES.contains(&series.split('{').next().unwrap_or_default());
    text.lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(series, value)| is_figure(series) && *value != "0")
        .map(|(series, value)| (series.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the routes of the page.
pub(crate) fn routes(status: Arc<Status>) -> Router {
    Router::new()
        .route("/", get(page).post(explain))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(status)
        .route("/style.css", get(style))
}

async fn page(State(status): State<Arc<Status>>) -> Response {
    status.page(None)
}

async fn explain(State(status): State<Arc<Status>>, Form(question): Form<Question>) -> Response {
    status.page(Some(status.explain(&question)))
}

fn html(page: &Page<'_>) -> Response {
    (PAGE_HEADERS, Html(page.markup().into_string())).into_response()
}

async fn style() -> Response {
    let media_type = [(header::CONTENT_TYPE, "text/css; charset=utf-8")];
    (PAGE_HEADERS, media_type, include_str!("status/style.css")).into_response()
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use runtime::metrics::counters_by;

    use super::*;

    #[test]
    fn a_figure_is_a_series_of_the_page_that_is_not_0() {
        let mut registry = Registry::default();
        let requests = counters_by("outcome", ["passed", "refused"]);
        requests.get_or_create(&[("outcome", "refused")]).inc();
        let (all, other) = ("postern_sidecar_requests", "postern_sidecar_requests_other");
        registry.register(all, "", requests);
        let counted = Counter::<u64>::default();
        counted.inc();
        registry.register(other, "", counted);
        let series = r#"postern_sidecar_requests_total{outcome="refused"}"#;
        let expected = [(series.to_owned(), "1".to_owned())];
        assert_eq!(figures(&registry), expected);
    }
}
