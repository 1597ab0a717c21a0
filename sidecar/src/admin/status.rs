//! The status page on the admin port, and its JSON twin: protected paths, freshness of the key,
//! outcomes of requests, rejections and their remedies.
//!
//! It reads the state of other rooms and changes nothing. The admin port serves it to loopback
//! peers only.

mod chart;
pub(crate) mod history;
mod page;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use runtime::admin::health::{ConditionState, Health};
use runtime::process::clock::unix_seconds;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use wire::explain::report::moment;

use self::history::{LastHour, Responses};
use crate::config::effective::{EffectiveConfig, EffectiveIssuer};
use crate::config::live::{CurrentRules, Rules};
use crate::keys::issuer_keys::{FIRST, IssuerKeys};
use crate::keys::source::jwks_url::MAX_FRESHNESS;
use crate::telemetry::metrics::{FastPathUse, Metrics};
use crate::telemetry::outcome::Totals;
use crate::telemetry::recent_rejections::{RecentRejections, RejectedRequest};

/// Content policy: no script, no resource but the style sheet of the page, no framing.
const PAGE_HEADERS: [(HeaderName, HeaderValue); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

/// The longest freshness of a key set (`MAX_FRESHNESS`), and three ticks of the contract's minute:
/// a single failed fetch is no news.
const FRESH_SECONDS: u64 = MAX_FRESHNESS.as_secs() + 180;

/// The sources of the page.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) rules: Arc<CurrentRules>,
    pub(crate) keys: Arc<IssuerKeys>,
    pub(crate) health: Health,
    pub(crate) hour: LastHour,
    pub(crate) rejections: Arc<RecentRejections>,
    pub(crate) metrics: Metrics,
    pub(crate) started: Instant,
}

/// All facts at one moment: the JSON twin, and the input of the page.
#[derive(Debug, Serialize)]
struct Snapshot<'a> {
    version: &'static str,
    at: String,
    uptime_seconds: u64,
    ready: bool,
    /// True while changed settings wait for the next start.
    restart_needed: bool,
    /// Their names.
    waiting_settings: &'a [String],
    /// The end of report-only mode, while it is on.
    reporting_until: Option<String>,
    /// The end of report-only mode, after it, while it stands in the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    reported_until: Option<String>,
    conditions: Vec<ConditionState>,
    protected: &'a EffectiveConfig,
    /// Keys of the only issuer, or of the first.
    keys: Option<KeysSnapshot>,
    /// All issuers, where there may be several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    issuers: Vec<IssuerSnapshot<'a>>,
    last_hour: Vec<MinuteSnapshot>,
    responses: ResponsesSnapshot,
    /// Rejections since the start by the name of the rule.
    rule_rejections: BTreeMap<&'a str, u64>,
    /// Since the start.
    fast_path: FastPathUse,
    #[serde(rename = "refusals")]
    rejections: Vec<RejectionSnapshot>,
}

#[derive(Debug, Serialize)]
struct IssuerSnapshot<'a> {
    #[serde(flatten)]
    issuer: &'a EffectiveIssuer,
    keys: Option<KeysSnapshot>,
}

#[derive(Debug, Serialize)]
struct KeysSnapshot {
    fresh: bool,
    /// True for keys that this process did not fetch.
    cached: bool,
    age_seconds: u64,
    generation: u64,
    keys: Vec<KeySnapshot>,
    /// `None` without a list.
    revocations: Option<RevocationSnapshot>,
}

#[derive(Debug, Serialize)]
struct RevocationSnapshot {
    seq: u64,
    entries: usize,
    age_seconds: u64,
}

#[derive(Debug, Serialize)]
struct KeySnapshot {
    id: String,
    algorithm: String,
}

#[derive(Debug, Serialize)]
struct MinuteSnapshot {
    began: String,
    #[serde(flatten)]
    requests: Totals,
}

/// Responses of the last hour.
#[derive(Debug, Serialize)]
struct ResponsesSnapshot {
    /// Number by status class; an empty class is for requests without a response.
    by_class: BTreeMap<&'static str, u64>,
    /// Durations of requests that half, 95 and 99 of 100 do not exceed.
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
struct RejectionSnapshot {
    at: String,
    reason: &'static str,
    message: &'static str,
    #[serde(flatten)]
    request: RejectedRequest,
    remedy: &'static str,
}

impl Status {
    fn snapshot<'r>(&self, rules: &'r Rules, now: SystemTime) -> Snapshot<'r> {
        let minute = |minute: history::Minute| MinuteSnapshot {
            began: rfc_3339(minute.began),
            requests: minute.requests,
        };
        let summaries = rules.effective.rules.iter();
        let rejections = |name: &'r str| (name, self.metrics.rule_rejections(name));
        Snapshot {
            version: env!("CARGO_PKG_VERSION"),
            at: rfc_3339(now),
            uptime_seconds: self.started.elapsed().as_secs(),
            ready: self.health.is_ready(),
            restart_needed: !rules.waiting_settings.is_empty(),
            waiting_settings: &rules.waiting_settings,
            reporting_until: rules
                .auth_policy
                .reports_until(unix_seconds(now))
                .map(moment),
            reported_until: rules
                .auth_policy
                .reported_until(unix_seconds(now))
                .map(moment),
            conditions: self.health.conditions(),
            protected: &rules.effective,
            keys: self.keys(FIRST),
            issuers: self.issuers(&rules.effective),
            last_hour: self.hour.minutes().into_iter().map(minute).collect(),
            responses: self.responses(),
            rule_rejections: summaries.map(|rule| rejections(&rule.name)).collect(),
            fast_path: self.metrics.fast_path_use(),
            rejections: self.rejections(),
        }
    }

    fn responses(&self) -> ResponsesSnapshot {
        let Responses {
            by_class,
            durations,
        } = self.hour.responses();
        let quantile = |share| {
            let found = durations.quantile(share);
            found.map(|found| found.as_micros() as f64 / 1000.0)
        };
        let by_class = by_class.into_iter().filter(|(_, count)| *count > 0);
        ResponsesSnapshot {
            by_class: by_class
                .map(|(class, count)| (class.name(), count))
                .collect(),
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
        }
    }

    fn issuers<'r>(&self, protected: &'r EffectiveConfig) -> Vec<IssuerSnapshot<'r>> {
        let snapshot = |issuer: &'r EffectiveIssuer| IssuerSnapshot {
            issuer,
            keys: self.keys(issuer.keys),
        };
        protected.issuers.iter().map(snapshot).collect()
    }

    fn keys(&self, issuer: usize) -> Option<KeysSnapshot> {
        let state = self.keys.get(issuer)?.load();
        let state = state.as_ref()?;
        let age_seconds = state.age(Instant::now()).as_secs();
        let key = |key: &wire::keys::VerificationKey| KeySnapshot {
            id: key.id().to_string(),
            algorithm: wire::keys::algorithms::name(key.algorithm()).to_owned(),
        };
        Some(KeysSnapshot {
            fresh: age_seconds <= FRESH_SECONDS,
            cached: state.is_cached(),
            age_seconds,
            generation: state.generation(),
            keys: state.keys().keys().iter().map(key).collect(),
            revocations: state.revocations().map(|revocations| RevocationSnapshot {
                seq: revocations.list().seq(),
                entries: revocations.list().entries(),
                age_seconds: revocations.age(Instant::now()).as_secs(),
            }),
        })
    }

    fn rejections(&self) -> Vec<RejectionSnapshot> {
        let newest = self.rejections.newest().into_iter();
        newest
            .map(|rejected| RejectionSnapshot {
                at: rfc_3339(rejected.at),
                reason: rejected.rejection.reason(),
                message: rejected.rejection.message(),
                remedy: rejected.rejection.help().action,
                request: rejected,
            })
            .collect()
    }
}

/// Formats a time to the second, in UTC.
fn rfc_3339(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time).replace_nanosecond(0);
    time.ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_default()
}

/// Returns the routes of the pages.
pub(crate) fn routes(status: Arc<Status>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/status.json", get(json))
        .with_state(status)
        .route("/reasons", get(async || html(page::reasons())))
        .route("/style.css", get(style))
}

async fn page(State(status): State<Arc<Status>>) -> Response {
    let rules = status.rules.load();
    html(page::status(&status.snapshot(&rules, SystemTime::now())))
}

async fn json(State(status): State<Arc<Status>>) -> Response {
    let rules = status.rules.load();
    let snapshot = status.snapshot(&rules, SystemTime::now());
    let media_type = [(header::CONTENT_TYPE, "application/json")];
    // Cannot fail: the snapshot holds strings and numbers only.
    let json = serde_json::to_vec(&snapshot).unwrap_or_default();
    (PAGE_HEADERS, media_type, json).into_response()
}

fn html(markup: maud::Markup) -> Response {
    (PAGE_HEADERS, Html(markup.into_string())).into_response()
}

async fn style() -> Response {
    let media_type = [(header::CONTENT_TYPE, "text/css; charset=utf-8")];
    (PAGE_HEADERS, media_type, include_str!("status/style.css")).into_response()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use http::Method;
    use wire::http::path_patterns::PassList;
    use wire::interceptor::Interceptor;
    use wire::rejection::Rejection;
    use wire::token::verifier::VerificationPolicy;

    use super::*;
    use crate::auth::authorize::AuthPolicy;
    use crate::cli::rule_args::DefaultRule;
    use crate::config::effective::RuleSummary;
    use crate::headers::forwarded::ForwardedPolicy;
    use crate::headers::identity::{Encoding, UserHeader};
    use crate::telemetry::access_log::RequestRecord;
    use crate::telemetry::metrics::{Departure, TokenCacheCounters};
    use crate::upstream::request::UpstreamRequestPolicy;

    fn rules(effective: EffectiveConfig) -> Arc<CurrentRules> {
        let interceptor = Interceptor::new(
            "/orders".parse().unwrap(),
            PassList::parse([]).unwrap(),
            1000,
        );
        let policy = VerificationPolicy {
            issuer: None,
            audiences: Vec::new(),
            any_access_token: false,
            leeway_seconds: 0,
            require_expiry: true,
            accept_bound_tokens: false,
            mapping: None,
            extra_claims: Vec::new(),
        };
        let user_header = UserHeader::new("X-Current-User", 1000).unwrap();
        Arc::new(CurrentRules::new(Rules {
            auth_policy: AuthPolicy::new(interceptor, policy, user_header),
            upstream_request: UpstreamRequestPolicy {
                forward_authorization: true,
                reuse_after_body: false,
                forwarded: ForwardedPolicy::Append,
            },
            effective,
            waiting_settings: Vec::new(),
        }))
    }

    fn page_of(status: &Status) -> String {
        let rules = status.rules.load();
        page::status(&status.snapshot(&rules, SystemTime::UNIX_EPOCH)).into_string()
    }

    fn status(rejected: &[(&[u8], Rejection)]) -> Status {
        let keys = Arc::new(IssuerKeys::only(Arc::default()));
        let rejections = RecentRejections::default();
        for (target, rejection) in rejected {
            let line = RequestRecord {
                request: Some((&Method::GET, target)),
                ..RequestRecord::default()
            };
            let status = Some(rejection.status().as_u16());
            rejections.remember(*rejection, status, &line, SystemTime::UNIX_EPOCH);
        }
        Status {
            rules: rules(EffectiveConfig {
                service: "http://127.0.0.1:3000".into(),
                context_path: "/orders".into(),
                public_paths: vec!["/static/<b>/**".into()],
                optional_paths: vec!["/feed/**".into()],
                rules: vec![RuleSummary {
                    name: "admin".into(),
                    methods: vec!["GET".into()],
                    paths: vec!["/admin/<a>".into()],
                    needs: "scope <em>".into(),
                }],
                default_rule: DefaultRule::Deny,
                token_cookie: Some("ticket".into()),
                cookie_origins: vec!["https://<s>".into()],
                websocket_token: true,
                user_header: "X-Current-User".into(),
                user_header_encoding: Encoding::Json,
                claim_headers: vec!["X-<i>=sub".into()],
                issuer: Some("\"><img src=x>".into()),
                audiences: vec!["orders".into(), "<u>".into()],
                cors_origins: Vec::new(),
                keys_from: "http://127.0.0.1:9000/auth".into(),
                settings: "public-path = [\"<kbd>\"]".into(),
                issuers: Vec::new(),
            }),
            hour: LastHour::new(
                Metrics::new(&TokenCacheCounters::default()).0,
                SystemTime::UNIX_EPOCH,
            ),
            keys,
            health: Health::new(),
            rejections: Arc::new(rejections),
            metrics: Metrics::new(&TokenCacheCounters::default()).0,
            started: Instant::now(),
        }
    }

    #[test]
    fn text_of_clients_is_escaped() {
        let attack = b"/<script>alert(1)</script>/\"onmouseover=x?token=hush";
        let status = status(&[(attack, Rejection::TokenMissing)]);
        let page = page_of(&status);
        assert!(
            page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
            "{page}"
        );
        for unsafe_text in [
            "<script",
            "<a>",
            "<b>",
            "<em>",
            "<i>",
            "<u>",
            "<s>",
            "<img",
            "<kbd>",
            "hush",
            "\"onmouseover",
        ] {
            assert!(!page.contains(unsafe_text), "{unsafe_text}\n{page}");
        }
    }

    #[test]
    fn a_rejection_links_to_its_remedy() {
        let status = status(&[(b"/a", Rejection::TokenExpired)]);
        let page = page_of(&status);
        assert!(page.contains("href=\"/reasons#token_expired\""), "{page}");
        let reasons = page::reasons().into_string();
        for rejection in Rejection::ALL {
            assert!(
                reasons.contains(&format!("id=\"{rejection}\"")),
                "{rejection}"
            );
        }
    }

    #[test]
    fn json_and_page_hold_the_same_facts() {
        let status = status(&[(b"/a?b", Rejection::TokenExpired)]);
        status.metrics.fast_path_taken();
        status.metrics.fast_path_left(Departure::HopByHop);
        status.metrics.fast_path_left(Departure::HopByHop);
        let rules = status.rules.load();
        let snapshot = status.snapshot(&rules, SystemTime::UNIX_EPOCH);
        let snapshot = serde_json::to_value(snapshot).unwrap();
        assert_eq!(snapshot["at"], "1970-01-01T00:00:00Z");
        assert_eq!(snapshot["keys"], serde_json::Value::Null);
        assert_eq!(snapshot["ready"], false);
        assert_eq!(snapshot["refusals"][0]["reason"], "token_expired");
        assert_eq!(snapshot["refusals"][0]["path"], "/a");
        assert_eq!(snapshot["last_hour"][0]["verified"], 0);
        assert_eq!(snapshot["responses"]["p99_ms"], serde_json::Value::Null);
        assert_eq!(
            snapshot["protected"]["settings"],
            "public-path = [\"<kbd>\"]"
        );
        assert_eq!(snapshot["fast_path"]["requests"], 1);
        assert_eq!(snapshot["fast_path"]["departures"]["hop_by_hop"], 2);
        let page = page_of(&status);
        assert!(page.contains("<dt>hop_by_hop</dt><dd>2</dd>"), "{page}");
    }
}
