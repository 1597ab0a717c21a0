//! The page as HTML. `maud` escapes every value that stands between tags or in an attribute.

use maud::{DOCTYPE, Markup, html};
use runtime::admin::health::ConditionState;
use wire::explain::report::moment;

/// The content of the page.
#[derive(Debug)]
pub(super) struct Page<'a> {
    /// The context path.
    pub(super) context: &'a str,
    /// The end of report-only mode, while it is on, in seconds since the epoch.
    pub(super) reports_until: Option<i64>,
    pub(super) ready: bool,
    pub(super) conditions: Vec<ConditionState>,
    /// Series with their values.
    pub(super) figures: Vec<(String, String)>,
    /// The explanation of the request in the form.
    pub(super) explanation: Option<String>,
    /// The pass-list lines of report-only mode.
    pub(super) suggestion: String,
    /// The configuration in force, as `check` prints it.
    pub(super) settings: &'a str,
}

impl Page<'_> {
    pub(super) fn markup(&self) -> Markup {
        let name = if self.context.is_empty() {
            "/"
        } else {
            self.context
        };
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (name) " – Postern sidecar" }
                    link rel="stylesheet" href="/style.css";
                    link rel="icon" href="data:,";
                }
                body {
                    header {
                        p.product { "Postern sidecar " (env!("CARGO_PKG_VERSION")) }
                        h1 { (name) }
                        (self.readiness())
                    }
                    main {
                        (self.explain())
                        (self.figures())
                        (self.suggestion())
                        section aria-labelledby="settings" {
                            h2 id="settings" { "Configuration in force" }
                            pre tabindex="0" { (self.settings) }
                        }
                    }
                    footer {
                        a href="/" { "Reload" } " · " a href="/metrics" { "Metrics" } " · "
                        a href="/readyz" { "Readiness" }
                    }
                }
            }
        }
    }

    fn readiness(&self) -> Markup {
        html! {
            @if let Some(until) = self.reports_until {
                p.state.bad {
                    "Not enforcing until " (moment(until)) ": requests without a valid token reach the service"
                }
            }
            @if self.ready { p.state.good { "Ready" } } @else { p.state.bad { "Not ready" } }
            ul {
                @for condition in &self.conditions {
                    @let texts = [&condition.reason, &condition.note];
                    li.bad[!condition.ok] {
                        code { (condition.name) }
                        @for text in texts.into_iter().flatten() { ": " (text) }
                    }
                }
            }
        }
    }

    fn explain(&self) -> Markup {
        html! {
            section aria-labelledby="explain" {
                h2 id="explain" { "Explain a request" }
                form method="post" action="/" {
                    label { "Method " input name="method" value="GET" size="8"; }
                    label { "Path " input name="target" value="/" size="40"; }
                    label {
                        "Headers, one in a line"
                        textarea name="headers" rows="3" placeholder="Authorization: Bearer …" {}
                    }
                    button { "Explain" }
                }
                @if let Some(text) = &self.explanation { pre id="explanation" tabindex="0" { (text) } }
            }
        }
    }

    fn figures(&self) -> Markup {
        html! {
            section aria-labelledby="figures" {
                h2 id="figures" { "Figures since the start" }
                table { tbody {
                    @for (series, value) in &self.figures {
                        tr { td { code { (series) } } td { (value) } }
                    }
                } }
            }
        }
    }

    fn suggestion(&self) -> Markup {
        html! {
            @if !self.suggestion.is_empty() {
                section aria-labelledby="suggestion" {
                    h2 id="suggestion" { "Requests without a token, as pass-list lines" }
                    pre tabindex="0" { (self.suggestion) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_escaped() {
        let attack = "</pre><script>alert(1)</script>".to_owned();
        let page = Page {
            context: &attack,
            reports_until: None,
            ready: false,
            conditions: vec![ConditionState {
                name: "a",
                ok: false,
                reason: Some(attack.clone()),
                note: Some(attack.clone()),
            }],
            figures: vec![(attack.clone(), attack.clone())],
            explanation: Some(attack.clone()),
            suggestion: attack.clone(),
            settings: &attack,
        };
        let html = page.markup().into_string();
        assert!(!html.contains("<script"), "{html}");
        let escaped = "&lt;/pre&gt;&lt;script&gt;alert(1)&lt;/script&gt;";
        // Title, heading, reason, note, series, value, explanation, suggestion, settings.
        assert_eq!(html.matches(escaped).count(), 9, "{html}");
    }
}
