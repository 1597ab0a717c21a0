//! The console at `{ctx}/static/`: sign in, read the token, call a service through its sidecar, and
//! see the reason of a rejection.
//!
//! A page and a script without privileges: `curl` can do the same. The token stays in the script's
//! memory.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use serde_json::{Map, Value, json};
use wire::http::cors::Origin;
use wire::http::path_patterns::ContextPath;
use wire::rejection::Rejection;

const PAGE: &str = include_str!("console/index.html");
const SCRIPT: &str = include_str!("console/console.js");
const STYLE: &str = include_str!("console/console.css");

/// The built-in files below `/static/`; files of `--static-dir` replace them.
#[derive(Debug, Clone)]
pub(crate) struct Console {
    policy: HeaderValue,
    settings: Bytes,
}

impl Console {
    /// Builds the files; `targets` are the sidecar origins that the page may call.
    pub(crate) fn new(context: &ContextPath, targets: &[Origin]) -> Self {
        let settings = json!({
            "context": context.as_str(),
            "targets": targets.iter().map(Origin::as_str).collect::<Vec<_>>(),
            "reasons": reasons(),
        });
        Self {
            policy: policy(targets),
            settings: settings.to_string().into(),
        }
    }

    /// Returns the file under a path relative to the context path.
    pub(super) fn file(&self, relative: &str) -> Option<Response> {
        let (media_type, content) = match relative {
            "/static/" | "/static/index.html" => ("text/html; charset=utf-8", PAGE.into()),
            "/static/console.js" => ("text/javascript; charset=utf-8", SCRIPT.into()),
            "/static/console.css" => ("text/css; charset=utf-8", STYLE.into()),
            "/static/console.json" => ("application/json", self.settings.clone()),
            _ => return None,
        };
        let mut response = Response::new(Body::from(content));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        // The settings change with a restart, the files with a version.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        Some(response)
    }
}

/// Returns a policy by which the page loads its own files only, and connects to this server and the
/// targets only.
fn policy(targets: &[Origin]) -> HeaderValue {
    let targets: String = targets
        .iter()
        .map(|target| format!(" {}", target.as_str()))
        .collect();
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'{targets}; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    );
    // An origin is ASCII without a semicolon, so this cannot fail; the fallback allows nothing.
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

fn reasons() -> Map<String, Value> {
    let row = |rejection: &Rejection| {
        let help = rejection.help();
        let row = json!({"cause": help.cause, "remedy": help.action});
        (rejection.reason().to_owned(), row)
    };
    Rejection::ALL.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn the_page_may_talk_to_the_targets_alone() {
        let targets =
            ["http://127.0.0.1:8080", "https://orders.example"].map(|t| t.parse().unwrap());
        let policy = policy(&targets);
        assert!(
            policy.to_str().unwrap().contains(
                "connect-src 'self' http://127.0.0.1:8080 https://orders.example; base-uri"
            )
        );
    }

    #[test]
    fn the_page_holds_no_inline_code_that_the_policy_would_stop() {
        for forbidden in [
            "style=",
            "onclick",
            "onload",
            "javascript:",
            "<style",
            "http://",
            "https://",
        ] {
            assert!(!PAGE.contains(forbidden), "{forbidden}");
        }
        assert_eq!(PAGE.matches("<script").count(), 1);
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "eval(",
            "localStorage",
            "sessionStorage",
            "document.cookie",
            ".style",
        ] {
            assert!(!SCRIPT.contains(forbidden), "{forbidden}");
        }
    }
}
