//! `check --paths`: what each pattern is for, as the rules of `serve` decide it.

use http::{HeaderMap, HeaderValue, Method, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use postern_contract::interceptor::{AuthRequirement, Interceptor};
use postern_http::methods::Methods;
use postern_http::path::patterns::PathPattern;

use crate::config::{examples, path_of};
use crate::decision::policy::AuthPolicy;

/// Methods by which a pattern for all is tried.
const METHODS: [Method; 5] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
];

/// The treatments of a request.
const PUBLIC: &str = "public";
const OPTIONAL: &str = "open without a token";
const CLOSED: &str = "closed without a token";
const OWN: &str = "the sidecar's own";

/// Characters that a path has in escapes; text beyond ASCII is escaped anyway.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ');

/// Returns a comment for each pattern of public and optional paths and of the rules.
pub(super) fn comments(policy: &AuthPolicy) -> String {
    let interceptor = &policy.interceptor;
    let mut lines = Vec::new();
    for (name, list, treatment) in [
        ("public", interceptor.pass_list(), PUBLIC),
        ("optional", interceptor.optional(), OPTIONAL),
    ] {
        for pattern in list.patterns() {
            let what = describe(interceptor, pattern.methods(), pattern, treatment);
            lines.push(format!("{name}: {what}"));
        }
    }
    for rule in policy.access_rules.rules() {
        for path in &rule.paths {
            let what = describe(interceptor, &rule.methods, path, CLOSED);
            lines.push(format!("rule {}: {what}", rule.name));
        }
    }
    lines.push("every other request needs a token".to_owned());
    lines.iter().map(|line| format!("# {line}\n")).collect()
}

/// Describes a pattern whose requests should have this treatment.
fn describe(
    interceptor: &Interceptor,
    methods: &Methods,
    pattern: &PathPattern,
    treatment: &'static str,
) -> String {
    let context = interceptor.context().as_str();
    let (names, tried) = if methods.are_all() {
        ("every method".to_owned(), METHODS.to_vec())
    } else {
        let each: Vec<_> = methods.each().cloned().collect();
        let names: Vec<_> = each.iter().map(Method::as_str).collect();
        (names.join(","), each)
    };
    let path = path_of(pattern.as_str());
    let example = pattern.example("x", "x").replace(' ', "%20");
    let mut line = format!("{names} of {context}{path}");
    // A pattern without a wildcard is its own example.
    if example != path {
        line += &format!(", as in {context}{example}");
    }
    let mut found = Vec::new();
    for example in examples(pattern) {
        let path = format!("{context}{}", utf8_percent_encode(&example, ESCAPED));
        for method in &tried {
            found.push(class_of(interceptor, method, &path));
        }
    }
    // Another setting may decide all paths of the pattern: the line has no effect then.
    if let Some(other) = found.first()
        && !found.contains(&treatment)
    {
        line += &format!("; catches nothing: these paths are {other}");
    }
    line
}

/// Classifies a request without a token and with one.
fn class_of(interceptor: &Interceptor, method: &Method, path: &str) -> &'static str {
    let token = HeaderValue::from_static("Bearer token");
    let with_token = HeaderMap::from_iter([(header::AUTHORIZATION, token)]);
    let classify = |headers| interceptor.classify(method, path.as_bytes(), headers);
    match (classify(&HeaderMap::new()), classify(&with_token)) {
        (Ok(AuthRequirement::Pass), Ok(AuthRequirement::Pass)) => PUBLIC,
        (Ok(AuthRequirement::Pass), _) => OPTIONAL,
        (_, Ok(AuthRequirement::NeedsToken(_))) => CLOSED,
        _ => OWN,
    }
}
