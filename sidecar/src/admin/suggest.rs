//! The requests that report-only mode let through without a token, as a pass list.
//!
//! A proposal only: a line that opens more than a page or two is a comment.

use std::collections::BTreeMap;

use postern_http::path::patterns::ContextPath;

use crate::telemetry::reported_paths::Reported;

/// Methods that no client expects to change something (RFC 9110 §9.2.1).
const SAFE: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// The requests of one path.
#[derive(Default)]
struct Line<'r> {
    methods: Vec<&'r str>,
    requests: u64,
}

/// Returns the pass list; empty if no request was let through without a token.
pub(super) fn pass_list(reported: &Reported, context: &ContextPath) -> String {
    let mut open: BTreeMap<&str, Line<'_>> = BTreeMap::new();
    let mut others = reported.others;
    for (template, count) in &reported.templates {
        match context.strip_from(&template.path) {
            Some(path) => {
                let line = open.entry(path).or_default();
                line.methods.push(template.method);
                line.requests += count;
            }
            // A path outside of the context path is no part of the pass list.
            None => others += count,
        }
    }
    let mut lines = String::new();
    for (path, Line { methods, requests }) in open {
        // A line that opens much is a comment until the operator has checked it.
        let mark = if opens_much(path, &methods) { '#' } else { ' ' };
        let methods = methods.join(",");
        lines += &format!("{mark} \"{methods} {path}\",  # {requests} requests\n");
    }
    let list = match lines.as_str() {
        "" => String::new(),
        lines => format!("public-path = [\n{lines}]\n"),
    };
    match others {
        0 => list,
        others => format!("{list}# {others} more, which no line matches\n"),
    }
}

/// Returns true for a line that lets clients change something, or matches every path of its depth.
fn opens_much(path: &str, methods: &[&str]) -> bool {
    let is_safe = methods.iter().all(|method| SAFE.contains(method));
    !is_safe || path.split('/').all(|name| matches!(name, "*" | ""))
}

#[cfg(test)]
mod tests {
    use postern_contract::rejection::Rejection;

    use super::*;
    use crate::telemetry::reported_paths::ReportedPaths;

    #[test]
    fn a_line_that_opens_much_is_a_comment() {
        let paths = ReportedPaths::default();
        for (method, target) in [
            ("GET", "/orders/products/1"),
            ("GET", "/orders/products/2?page=1"),
            ("HEAD", "/orders/products/2"),
            ("POST", "/orders/contact"),
            ("get", "/orders/products/2"),
            ("GET", "/orders/1"),
            ("GET", "/elsewhere"),
            ("GET", "/orders//x"),
        ] {
            let request = (method, target.as_bytes());
            paths.remember(Rejection::TokenMissing, request, Some(200));
        }
        paths.remember(Rejection::TokenExpired, ("GET", b"/orders/list"), Some(200));
        let context = "/orders".parse().unwrap_or_default();
        let text = "public-path = [\n\
                    # \"GET /*\",  # 1 requests\n\
                    # \"POST /contact\",  # 1 requests\n  \
                    \"GET,HEAD /products/*\",  # 3 requests\n\
                    ]\n\
                    # 3 more, which no line matches\n";
        assert_eq!(pass_list(&paths.counts(), &context), text);
    }
}
