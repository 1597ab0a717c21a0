//! The pages as HTML. `maud` escapes every value that stands between tags or in an attribute.

use maud::{DOCTYPE, Markup, html};
use wire::explain::report::duration;
use wire::rejection::Rejection;

use super::chart::chart;
use super::{IssuerSnapshot, KeysSnapshot, RejectionSnapshot, Snapshot};
use crate::cli::rule_args::DefaultRule;
use crate::config::effective::EffectiveConfig;
use crate::headers::identity::Encoding;
use crate::telemetry::metrics::FastPathUse;
use crate::telemetry::outcome::Totals;

pub(super) fn status(snapshot: &Snapshot<'_>) -> Markup {
    let name = name_of(snapshot.protected);
    document(
        &format!("{name} – Postern sidecar"),
        html! {
            header {
                p.product { "Postern sidecar " (snapshot.version) }
                h1 { (name) }
                p { "protects " code { (snapshot.protected.service) } }
                (readiness(snapshot))
            }
            main {
                div.cards {
                    @if snapshot.issuers.is_empty() {
                        (keys(snapshot.keys.as_ref(), &snapshot.protected.keys_from))
                    }
                    @for (index, issuer) in snapshot.issuers.iter().enumerate() {
                        (issuer_card(index, issuer))
                    }
                    (hour_in_numbers(snapshot))
                    (protected(snapshot.protected))
                    (rules(snapshot))
                    (fast_path(&snapshot.fast_path))
                }
                section aria-labelledby="hour" {
                    h2 id="hour" { "Requests in the last hour" }
                    (chart(&snapshot.last_hour))
                    (legend())
                }
                section aria-labelledby="settings" {
                    h2 id="settings" { "Configuration in force" }
                    details {
                        summary { "All settings, as " code { "sidecar check" } " prints them" }
                        pre tabindex="0" { (snapshot.protected.settings) }
                    }
                }
                section aria-labelledby="rejections" {
                    h2 id="rejections" { "Recent rejections" }
                    (rejections(&snapshot.rejections))
                }
            }
            footer {
                p {
                    "As of " time datetime=(snapshot.at) { (readable(&snapshot.at)) } " UTC, running for "
                    (duration(snapshot.uptime_seconds)) ". "
                    a href="/" { "Reload" } " · " a href="/status.json" { "JSON" } " · "
                    a href="/reasons" { "All reason codes" } " · " a href="/metrics" { "Metrics" }
                }
            }
        },
    )
}

pub(super) fn reasons() -> Markup {
    document(
        "Reason codes – Postern sidecar",
        html! {
            header {
                p.product { a href="/" { "Postern sidecar" } }
                h1 { "Reason codes" }
                p { "The same code is in the response, the log, the metrics and on the status page." }
            }
            main.reasons {
                @for rejection in Rejection::ALL {
                    @let help = rejection.help();
                    section id=(rejection) {
                        h2 { code { (rejection) } " " span.status { (rejection.status().as_u16()) } }
                        p { (with_code(help.cause)) }
                        p { strong { "What to do: " } (with_code(help.action)) }
                    }
                }
            }
        },
    )
}

fn document(title: &str, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="stylesheet" href="/style.css";
                link rel="icon" href="data:,";
            }
            body { (body) }
        }
    }
}

fn name_of(protected: &EffectiveConfig) -> &str {
    match protected.context_path.as_str() {
        "" => "/",
        context => context,
    }
}

fn readiness(snapshot: &Snapshot<'_>) -> Markup {
    html! {
        @if let Some(until) = &snapshot.reporting_until {
            p.state.bad { "Not enforcing until " (readable(until)) " UTC: requests without a valid token reach the service" }
        }
        @if let Some(until) = &snapshot.reported_until {
            p.state { "Report-only mode ended at " (readable(until)) " UTC: requests without a valid token are rejected. Take " code { "--enforce report" } " and " code { "--report-until" } " out" }
        }
        @if snapshot.restart_needed {
            p.state.bad { "Restart needed: these settings wait for the next start: " (snapshot.waiting_settings.join(", ")) }
        }
        @if snapshot.ready {
            p.state.good { "Ready" }
        } @else {
            p.state.bad { "Not ready" }
            ul {
                @for condition in snapshot.conditions.iter().filter(|condition| !condition.ok) {
                    li {
                        code { (condition.name) }
                        @if let Some(reason) = &condition.reason { ": " (reason) }
                    }
                }
            }
        }
    }
}

fn keys(keys: Option<&KeysSnapshot>, keys_from: &str) -> Markup {
    html! {
        section.card aria-labelledby="key" {
            h2 id="key" { "Verification key" }
            (key_state(keys, keys_from))
        }
    }
}

/// One of several issuers.
fn issuer_card(index: usize, issuer: &IssuerSnapshot<'_>) -> Markup {
    let (id, settings) = (format!("issuer-{index}"), issuer.issuer);
    html! {
        section.card aria-labelledby=(id) {
            h2 id=(id) { "Issuer " (settings.name) }
            (key_state(issuer.keys.as_ref(), &settings.keys_from))
            dl {
                dt { "issuer" } dd { (or_unchecked(&settings.accepts)) }
                dt { "audience" } dd { (or_unchecked(&settings.audiences)) }
                @if let Some(name) = &settings.token_header {
                    dt { "token header" } dd { code { (name) } }
                }
                @if !settings.user_prefix.is_empty() {
                    dt { "user prefix" } dd { code { (settings.user_prefix) } }
                }
                @for header in &settings.claim_headers {
                    dt { "claim header" } dd { code { (header) } }
                }
            }
        }
    }
}

fn key_state(keys: Option<&KeysSnapshot>, keys_from: &str) -> Markup {
    html! {
        @match keys {
            None => {
                p.state.bad { "None yet" }
                p { a href="/reasons#auth_keys_unavailable" { "Tokens get a 503" } " until one is fetched." }
            }
            Some(keys) => {
                @if keys.fresh { p.state.good { "Fresh" } } @else { p.state.bad { "Stale" } }
                p { "Fetched " strong { (duration(keys.age_seconds)) " ago" } @if keys.cached { ", from the key cache" } }
                ul.plain {
                    @for key in &keys.keys { li { code { (key.id) } " " span.quiet { (key.algorithm) } } }
                }
                p.quiet { (changes(keys.generation)) }
                @if let Some(list) = &keys.revocations {
                    p { "Revoked: " strong { (list.entries) } ", fetched " (duration(list.age_seconds)) " ago" }
                }
            }
        }
        p.quiet { "from " code { (keys_from) } }
    }
}

/// The numbers of the chart as text.
fn hour_in_numbers(snapshot: &Snapshot<'_>) -> Markup {
    let minutes = snapshot.last_hour.iter().map(|minute| minute.requests);
    let sum = minutes.fold(Totals::default(), Totals::plus);
    let responses = &snapshot.responses;
    html! {
        section.card aria-labelledby="numbers" {
            h2 id="numbers" { "Last hour" }
            p.figure { strong { (sum.sum()) } " requests" }
            dl {
                dt { "verified" } dd { (sum.verified) }
                dt { "public paths" } dd { (sum.passed) }
                dt { "current user" } dd { (sum.responded) }
                @if sum.reported > 0 { dt { "reported" } dd { (sum.reported) } }
                dt { "rejected" } dd { (sum.rejected) }
                dt { "client left" } dd { (sum.aborted) }
                @for (class, count) in &responses.by_class {
                    dt { @if class.is_empty() { "no response" } @else { "status " (class) } } dd { (count) }
                }
                @for (name, found) in [("p50", responses.p50_ms), ("p95", responses.p95_ms), ("p99", responses.p99_ms)] {
                    @if let Some(found) = found { dt { (name) } dd { (milliseconds(found)) } }
                }
            }
        }
    }
}

/// Formats a duration that is interpolated, and so not exact.
fn milliseconds(duration: f64) -> String {
    match duration {
        ..10.0 => format!("{duration:.1} ms"),
        _ => format!("{duration:.0} ms"),
    }
}

fn protected(protected: &EffectiveConfig) -> Markup {
    html! {
        section.card aria-labelledby="protected" {
            h2 id="protected" { "Protected paths" }
            p { "Every path needs a token"
                @if protected.public_paths.is_empty() && protected.optional_paths.is_empty() { "." }
                @else { ", except below " code { (name_of(protected)) } ":" }
            }
            ul.plain {
                @for pattern in &protected.public_paths { li { code { (pattern) } } }
                @for pattern in &protected.optional_paths { li { code { (pattern) } " if none is sent" } }
            }
            dl {
                @if protected.issuers.is_empty() {
                    dt { "issuer" } dd { (or_unchecked(protected.issuer.as_slice())) }
                    dt { "audience" } dd { (or_unchecked(&protected.audiences)) }
                }
                dt { "user header" } dd {
                    code { (protected.user_header) }
                    @if protected.user_header_encoding == Encoding::Base64url { " in base64url" }
                }
                @for header in &protected.claim_headers {
                    dt { "claim header" } dd { code { (header) } }
                }
                @if let Some(name) = &protected.token_cookie {
                    dt { "token cookie" } dd {
                        code { (name) }
                        @if !protected.cookie_origins.is_empty() {
                            ", also from " (protected.cookie_origins.join(", "))
                        }
                    }
                }
                @if protected.websocket_token {
                    dt { "WebSockets" } dd { "token as a protocol" }
                }
                @if !protected.cors_origins.is_empty() {
                    dt { "browsers from" } dd { (protected.cors_origins.join(", ")) }
                }
            }
        }
    }
}

/// The rules, if there are any.
fn rules(snapshot: &Snapshot<'_>) -> Markup {
    let protected = snapshot.protected;
    let rejections = |name: &str| snapshot.rule_rejections.get(name).copied().unwrap_or(0);
    html! {
        @if !protected.rules.is_empty() {
            section.card aria-labelledby="rules" {
                h2 id="rules" { "Rules" }
                ul.plain {
                    @for rule in &protected.rules {
                        li {
                            code { (rule.name) } ": " (rule.methods.join(", ")) " "
                            @for path in &rule.paths { code { (path) } " " }
                            "needs " (rule.needs) ", "
                            strong { (rejections(&rule.name)) } " rejected or reported"
                        }
                    }
                }
                p.quiet {
                    "Counted since the start. "
                    @match protected.default_rule {
                        DefaultRule::Token => "Elsewhere a valid token is enough.",
                        DefaultRule::Deny => "Elsewhere no token is enough.",
                    }
                }
            }
        }
    }
}

/// The requests without Pingora's proxy, and why connections left them.
fn fast_path(used: &FastPathUse) -> Markup {
    let departures = used.departures.iter().filter(|(_, count)| **count > 0);
    html! {
        section.card aria-labelledby="fast-path" {
            h2 id="fast-path" { "Fast path" }
            p.figure { strong { (used.requests) } " requests since the start" }
            @if used.departures.values().all(|count| *count == 0) {
                p.quiet { "No connection has left it." }
            } @else {
                p { "Connections that left it:" }
                dl { @for (reason, count) in departures { dt { (reason) } dd { (count) } } }
            }
        }
    }
}

/// Joins the accepted values.
fn or_unchecked(accepted: &[String]) -> Markup {
    html! {
        @for (index, value) in accepted.iter().enumerate() {
            @if index > 0 { " or " }
            code { (value) }
        }
        @if accepted.is_empty() { span.quiet { "not checked" } }
    }
}

fn legend() -> Markup {
    html! {
        ul.legend {
            @for (class, text) in [
                ("verified", "verified"), ("passed", "public paths"), ("answered", "current user"),
                ("reported", "reported"), ("aborted", "client left"), ("refused", "rejected"),
            ] {
                li { svg.swatch viewBox="0 0 10 10" aria-hidden="true" { rect class=(class) width="10" height="10" {} } (text) }
            }
        }
    }
}

fn rejections(rejections: &[RejectionSnapshot]) -> Markup {
    html! {
        @if rejections.is_empty() {
            p.quiet { "No request was rejected since the start." }
        } @else {
            div.scroll tabindex="0" role="region" aria-labelledby="rejections" {
                table {
                    thead { tr {
                        th scope="col" { "Time (UTC)" } th scope="col" { "Reason" } th scope="col" { "Status" }
                        th scope="col" { "Method" } th scope="col" { "Path" } th scope="col" { "Client" } th scope="col" { "More" }
                    } }
                    tbody { @for rejection in rejections { (row(rejection)) } }
                }
            }
        }
    }
}

fn row(rejected: &RejectionSnapshot) -> Markup {
    let request = &rejected.request;
    html! {
        tr {
            td.time { time datetime=(rejected.at) { (readable(&rejected.at)) } }
            td { a href={ "/reasons#" (rejected.reason) } title=(rejected.message) { (rejected.reason) } }
            td { (request.status.map(|status| status.to_string()).unwrap_or_default()) }
            td { (request.method.as_deref().unwrap_or("–")) }
            td.path { (request.path.as_deref().unwrap_or("–")) }
            td { @match request.client { Some(client) => (client), None => "–" } }
            td.more {
                @if let Some(upstream) = &request.upstream { (upstream) " " }
                @if let Some(cause) = &request.cause { (cause) " " }
                @if let Some(id) = &request.request_id { "request " code { (id) } " " }
                @if let Some(id) = &request.trace_id { "trace " code { (id) } }
            }
        }
    }
}

/// Marks backticked text as code.
fn with_code(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// Formats `2026-01-31T12:00:00Z` for people; the page names the time zone.
fn readable(rfc_3339: &str) -> String {
    rfc_3339.trim_end_matches('Z').replace('T', " ")
}

fn changes(generation: u64) -> String {
    match generation.saturating_sub(1) {
        0 => "Not changed since the start".to_owned(),
        1 => "Changed once since the start".to_owned(),
        count => format!("Changed {count} times since the start"),
    }
}
