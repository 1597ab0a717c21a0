//! The status page, `GET /` on the admin port: HTML for a browser, text for everything else. It has
//! no facts of its own, runs no script, and the admin port serves it to loopback peers only.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, header};
use maud::{DOCTYPE, Markup, html};
use postern_http::request::kind::accepts;
use postern_process::clock::unix_now;
use postern_process::metrics::exposition::exposition;
use postern_token::times::{distance, duration};
use prometheus_client::registry::Registry;

use super::health::{ConditionState, Health};

const STYLE: &str = include_str!("page.css");
/// The page loads its style alone, and no page of others has it in a frame.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src data:; form-action 'none'; \
     frame-ancestors 'none'; base-uri 'none'";
/// The heading of the settings in force, which both programs have.
pub const SETTINGS: &str = "Settings that are given; all others are defaults";
const READY: &str = "Ready";
/// Further pages of the admin port.
const LINKS: [&str; 4] = ["/readyz", "/startupz", "/livez", "/metrics"];

/// The sources of the page of one program.
#[derive(Debug, Clone)]
pub struct StatusPage {
    /// The time of its start.
    pub started: Instant,
    /// Readiness and reloads.
    pub health: Health,
    /// Counts of requests and rejections.
    pub metrics: Arc<Registry>,
    /// The beginning of the names of its metrics.
    pub prefix: &'static str,
    /// The label of `requests_total` that says how a request ended.
    pub outcome: &'static str,
    /// The metric of rejections by reason.
    pub rejections: &'static str,
    /// The heading and the metric of what else is counted by `outcome`.
    pub further: Option<(&'static str, &'static str)>,
    /// Returns cause and remedy of a reason code.
    pub help: fn(&str) -> [&'static str; 2],
}

/// The part of the page that a program writes itself.
#[derive(Debug)]
pub struct OwnPart {
    /// Its name, version and context path.
    pub title: String,
    /// A notice to the operator, in front of all else.
    pub notice: Option<String>,
    /// The last sections; one without a line is left out.
    pub sections: Vec<Section>,
}

/// A heading and the lines below it.
#[derive(Debug)]
pub struct Section {
    title: &'static str,
    rows: Vec<Row>,
}

/// A line: a name with a value, or a text.
#[derive(Debug, Default)]
struct Row {
    name: String,
    value: String,
    detail: String,
    /// Paragraphs that a browser unfolds.
    help: Vec<&'static str>,
    is_bad: bool,
}

/// The whole page.
#[derive(Debug)]
struct Page {
    /// With all sections.
    own: OwnPart,
    state: &'static str,
    up: String,
}

impl StatusPage {
    /// Returns the routes; `own` is called for each request.
    pub fn routes(self, own: impl Fn() -> OwnPart + Clone + Send + Sync + 'static) -> Router {
        let respond = async move |headers: HeaderMap| self.page(own()).response(&headers);
        let style = [(header::CONTENT_TYPE, "text/css; charset=utf-8")];
        Router::new()
            .route("/", get(respond))
            .route("/page.css", get((style, STYLE)))
    }

    fn page(&self, mut own: OwnPart) -> Page {
        let metrics = exposition(&self.metrics).unwrap_or_default();
        let conditions = self.health.conditions();
        let is_ready = conditions.iter().all(|condition| condition.ok);
        let state = match (is_ready, conditions.iter().any(|it| it.warns)) {
            (false, _) => "Not ready",
            (true, true) => "Ready, with warnings",
            (true, false) => READY,
        };
        if let Some((title, metric)) = self.further {
            let counts = self.counts(&metrics, metric, "outcome");
            own.sections.insert(0, Section::new(title, counts));
        }
        own.sections.retain(|section| !section.rows.is_empty());
        let requests = self.counts(&metrics, "requests_total", self.outcome);
        let rejections = self.rejections(&metrics, unix_now());
        let sections = [
            Section::new("Readiness", conditions.into_iter().map(condition).collect()),
            Section::new("Requests", requests),
            Section::new("Rejections, the latest first", rejections),
        ];
        own.sections.splice(0..0, sections);
        let up = duration(self.started.elapsed().as_secs());
        Page { own, state, up }
    }

    fn counts(&self, metrics: &str, metric: &str, label: &str) -> Vec<Row> {
        let mut rows = Vec::new();
        for (name, count) in self.sums(metrics, metric, label) {
            if count > 0 {
                rows.push(Row::new(name, count));
            }
        }
        rows
    }

    fn rejections(&self, metrics: &str, now: i64) -> Vec<Row> {
        let counts = self.sums(metrics, self.rejections, "reason");
        let mut latest_first: Vec<_> = self
            .sums(metrics, "last_rejection_timestamp_seconds", "reason")
            .into_iter()
            .collect();
        latest_first.sort_by_key(|(_, time)| Reverse(*time));
        let mut rows = Vec::new();
        for (reason, time) in latest_first {
            rows.push(Row {
                detail: format!("last {}", distance(time, now)),
                help: (self.help)(reason).into(),
                ..Row::new(reason, counts.get(reason).unwrap_or(&0))
            });
        }
        rows
    }

    fn sums<'t>(&self, metrics: &'t str, metric: &str, label: &str) -> BTreeMap<&'t str, i64> {
        sums(metrics, &format!("{}_{metric}", self.prefix), label)
    }
}

/// Returns the sum of a metric's samples for each value of one of its labels.
fn sums<'t>(metrics: &'t str, metric: &str, label: &str) -> BTreeMap<&'t str, i64> {
    let start = format!("{metric}{{");
    let label = format!("{label}=\"");
    let mut sums = BTreeMap::new();
    for line in metrics.lines().filter(|line| line.starts_with(&start)) {
        if let Some((_, rest)) = line.split_once(&label)
            && let Some((value, _)) = rest.split_once('"')
            && let Some((_, sample)) = line.rsplit_once(' ')
            && let Ok(sample) = sample.parse::<i64>()
        {
            *sums.entry(value).or_default() += sample;
        }
    }
    sums
}

fn condition(condition: ConditionState) -> Row {
    let word = match (condition.ok, condition.warns) {
        (false, _) => "no",
        (true, true) => "warn",
        (true, false) => "ok",
    };
    let details = [condition.reason, condition.note].into_iter().flatten();
    Row {
        detail: details.collect::<Vec<_>>().join("; "),
        is_bad: word != "ok",
        ..Row::new(condition.name, word)
    }
}

impl Page {
    fn response(&self, headers: &HeaderMap) -> Response {
        let fields = [
            (header::CACHE_CONTROL, "no-store"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ];
        let is_html = |media_type: &[u8]| media_type.eq_ignore_ascii_case(b"text/html");
        if accepts(headers, is_html) {
            return (fields, Html(self.html().into_string())).into_response();
        }
        (fields, self.text()).into_response()
    }

    fn html(&self) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.state) ": " (self.own.title) }
                    link rel="icon" href="data:,";
                    link rel="stylesheet" href="page.css";
                }
                body {
                    h1 { (self.own.title) }
                    p { strong .bad[self.state != READY] { (self.state) } ", up " (self.up) }
                    @if let Some(notice) = &self.own.notice { p .bad { (notice) } }
                    @for section in &self.own.sections {
                        h2 { (section.title) }
                        @if section.rows.is_empty() { p { "none" } }
                        @for row in &section.rows { (row.html()) }
                    }
                    nav { @for link in LINKS { a href=(link) { (link) } " " } }
                }
            }
        }
    }

    fn text(&self) -> String {
        let Self { own, state, up } = self;
        let mut text = format!("{}\n{state}, up {up}\n", own.title);
        if let Some(notice) = &own.notice {
            let _ = writeln!(text, "{notice}");
        }
        for Section { title, rows } in &own.sections {
            let _ = writeln!(text, "\n# {title}");
            if rows.is_empty() {
                text += "none\n";
            }
            for row in rows {
                let line = format!("{:<26} {:<8} {}", row.name, row.value, row.detail);
                let _ = writeln!(text, "{}", line.trim_end());
            }
        }
        let _ = writeln!(text, "\n{}", LINKS.join(" "));
        // Causes may hold what others sent, and a terminal would obey it.
        text.replace(|letter: char| letter.is_control() && letter != '\n', "")
    }
}

impl Section {
    const fn new(title: &'static str, rows: Vec<Row>) -> Self {
        Self { title, rows }
    }

    /// Returns a section of a text.
    #[must_use]
    pub fn text(title: &'static str, text: &str) -> Self {
        Self::new(title, text.lines().map(|line| Row::new(line, "")).collect())
    }
}

impl Row {
    fn new(name: &str, value: impl ToString) -> Self {
        Self {
            name: name.to_owned(),
            value: value.to_string(),
            ..Self::default()
        }
    }

    fn html(&self) -> Markup {
        html! {
            div .row .text[self.value.is_empty()] .bad[self.is_bad] {
                code { (self.name) }
                span { (self.value) }
                div {
                    (self.detail)
                    @if !self.help.is_empty() {
                        details {
                            summary { "cause and remedy" }
                            @for paragraph in &self.help { p { (paragraph) } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use axum::body::to_bytes;
    use http::HeaderValue;
    use http::response::Parts;

    use super::*;

    const EVIL: &str = "<script>alert('1')</script>&\u{1b}[31m";

    /// A page on which others' words stand wherever they can.
    async fn response(accept: &'static str) -> (Parts, String) {
        let health = Health::new();
        health.condition("store", "").set_not_ready(EVIL);
        health.files("tls_files").reloaded(None);
        health.files("users_file").reloaded(Some(EVIL));
        let conditions = health.conditions().into_iter().map(condition).collect();
        let rejection = Row {
            help: vec!["Cause.", "Remedy."],
            ..Row::new("token_missing", 7)
        };
        let own = OwnPart {
            title: EVIL.to_owned(),
            notice: Some(EVIL.to_owned()),
            sections: vec![
                Section::new("Readiness", conditions),
                Section::new("Requests", Vec::new()),
                Section::new("Rejections", vec![rejection]),
                Section::text(SETTINGS, EVIL),
            ],
        };
        let (state, up) = ("Not ready", duration(3));
        let page = Page { own, state, up };
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        let (parts, body) = page.response(&headers).into_parts();
        let body = to_bytes(body, 64 * 1024).await.unwrap();
        (parts, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_browser_gets_html_in_which_every_text_is_escaped() {
        let (parts, html) = response("text/html,*/*;q=0.8").await;
        for (name, value) in [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CACHE_CONTROL, "no-store"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
        ] {
            assert_eq!(parts.headers[name], value);
        }
        assert!(html.starts_with("<!DOCTYPE html>"), "{html}");
        assert!(!html.contains("<script"), "{html}");
        // Two titles, the notice, the condition, the reload, the settings.
        assert_eq!(html.matches("&lt;script&gt;alert").count(), 6, "{html}");
    }

    #[tokio::test]
    async fn everything_else_gets_text_that_no_terminal_obeys() {
        for accept in ["text/html;q=0", "a/b, text/html; q=0.0, */*", "*/*"] {
            let media_type = &response(accept).await.0.headers[header::CONTENT_TYPE];
            assert_eq!(media_type, "text/plain; charset=utf-8", "{accept}");
        }
        let (_, text) = response("*/*").await;
        assert!(!text.contains('\u{1b}'), "{text}");
        for line in [
            "Not ready, up 3 s",
            "started                    no       starting",
            "store                      no       <script>alert('1')</script>&[31m",
            "token_missing              7",
            "none",
            "<script>alert('1')</script>&[31m",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let mut lines = text.lines();
        let reload = lines.find(|line| line.starts_with("users_file "));
        assert!(
            reload.unwrap().contains("warn     reload rejected at 20"),
            "{text}"
        );
    }

    #[test]
    fn counts_are_added_by_one_label() {
        let text = "a_total{x=\"one\",y=\"p\"} 2\na_total{x=\"two\",y=\"p\"} 3\n\
            a_total{x=\"one\",y=\"q\"} 4\na_total_b{x=\"one\"} 7\na_total 8\n";
        assert_eq!(sums(text, "a_total", "x"), [("one", 6), ("two", 3)].into());
    }
}
