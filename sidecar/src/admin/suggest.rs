//! `GET /suggest`: a pass list from the requests that report-only mode let through, as a part of a
//! configuration file.
//!
//! A proposal only; patterns that open more than they seem to are written as comments.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use wire::rejection::Rejection;

use crate::config::live::CurrentRules;
use crate::config::opens_too_much;
use crate::telemetry::reported_paths::{Reported, ReportedPaths};
use crate::telemetry::request_span::OTHER_METHOD;

pub(crate) const PATH: &str = "/suggest";

/// Methods that change something for any client, on a public path.
const CHANGING: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];

/// The sources of a suggestion.
#[derive(Debug, Clone)]
pub(crate) struct Suggestions {
    pub(crate) rules: Arc<CurrentRules>,
    pub(crate) reported: Arc<ReportedPaths>,
}

impl Suggestions {
    /// Returns the route.
    pub(crate) fn routes(self) -> Router {
        Router::new().route(PATH, get(suggest)).with_state(self)
    }
}

async fn suggest(State(suggestions): State<Suggestions>) -> String {
    let rules = suggestions.rules.load();
    text(
        &suggestions.reported.counts(),
        &rules.effective.context_path,
    )
}

/// The requests without a token of one path.
#[derive(Debug, Default)]
struct PublicPath<'r> {
    methods: Vec<&'r str>,
    requests: u64,
}

fn text(reported: &Reported, context: &str) -> String {
    let mut open: BTreeMap<&str, PublicPath<'_>> = BTreeMap::new();
    let mut others = String::new();
    for (template, count) in &reported.templates {
        let (method, reason) = (template.method, template.reason);
        let relative = relative(&template.path, context);
        let helps = reason == Rejection::TokenMissing.reason() && method != OTHER_METHOD;
        match relative.filter(|_| helps) {
            Some(path) => {
                let open = open.entry(path).or_default();
                open.methods.push(method);
                open.requests += count;
            }
            None => {
                let _ = writeln!(
                    others,
                    "#   {count:>7}  {reason}  {method} {}",
                    template.path
                );
            }
        }
    }
    let mut text = String::from(
        "# Requests that would be rejected, since the start. A line opens its path to all clients: keep\n\
         # those that need no user, and let the clients of the others send a token.\npublic-path = [\n",
    );
    for (path, open) in &open {
        let PublicPath { methods, requests } = open;
        let pattern = format!("{} {path}", methods.join(","));
        let line = match danger(path, methods) {
            None => format!("  \"{pattern}\",  # {requests} requests"),
            Some(danger) => format!("# \"{pattern}\",  # {requests} requests; {danger}"),
        };
        text.push_str(&line);
        text.push('\n');
    }
    text.push_str("]\n");
    if !others.is_empty() {
        text.push_str("# Requests that no pass list helps: requests, reason, method, path\n");
        text.push_str(&others);
    }
    if reported.others > 0 {
        let _ = writeln!(
            text,
            "# {} more, with paths that no pattern matches, or after the first thousand",
            reported.others
        );
    }
    text
}

/// Returns the path below the context path.
fn relative<'p>(path: &'p str, context: &str) -> Option<&'p str> {
    match path.strip_prefix(context)? {
        "" => Some("/"),
        rest => rest.starts_with('/').then_some(rest),
    }
}

/// Returns the reason why an operator should check a pattern before listing it.
fn danger(path: &str, methods: &[&str]) -> Option<String> {
    if methods.iter().any(|method| CHANGING.contains(method)) {
        return Some("it changes something".to_owned());
    }
    if path.split('/').skip(1).all(|name| matches!(name, "*" | "")) {
        return Some("it matches every path of this depth".to_owned());
    }
    opens_too_much(path)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn the_suggestion_is_a_pass_list_with_comments_on_danger() {
        let paths = ReportedPaths::default();
        let missing = Rejection::TokenMissing;
        let invented = Method::from_bytes(b"get").unwrap_or_default();
        for (rejection, method, target) in [
            (missing, Method::GET, "/orders/products/1"),
            (missing, Method::GET, "/orders/products/2?page=1"),
            (missing, Method::HEAD, "/orders/products/2"),
            (missing, Method::POST, "/orders/contact"),
            (missing, invented, "/orders/products/2"),
            (missing, Method::GET, "/orders/1"),
            (missing, Method::GET, "/elsewhere"),
            (Rejection::TokenExpired, Method::GET, "/orders/products/3"),
            (Rejection::InsufficientScope, Method::PUT, "/orders/admin"),
            (missing, Method::GET, "/orders//x"),
        ] {
            paths.remember(rejection, &method, target.as_bytes());
        }
        let text = text(&paths.counts(), "/orders");
        for line in [
            "  \"GET,HEAD /products/*\",  # 3 requests",
            "# \"POST /contact\",  # 1 requests; it changes something",
            "# \"GET /*\",  # 1 requests; it matches every path of this depth",
            "#         1  token_missing  GET /elsewhere",
            "#         1  token_missing  _OTHER /orders/products/*",
            "#         1  token_expired  GET /orders/products/*",
            "#         1  insufficient_scope  PUT /orders/admin",
            "# 1 more, with paths that no pattern matches, or after the first thousand",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let read: toml::Table = text.parse().unwrap_or_default();
        let listed = read.get("public-path").and_then(toml::Value::as_array);
        assert_eq!(listed.map(Vec::len), Some(1), "{text}");
    }
}
