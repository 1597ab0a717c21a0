//! Warnings about patterns of `--public-path` and `--optional-auth-path` that match more, or less,
//! than they seem to. Patterns that can never match are rejected at parsing.

use runtime::process::exit::ExitError;
use wire::http::methods::Methods;
use wire::http::path_patterns::{PassList, PathPattern};
use wire::interceptor::USER_DETAILS_PATH;

use super::policy::{optional_list, pass_list};
use crate::cli::policy_args::RulesArgs;

/// Paths that no pattern lists on purpose.
const UNLISTED: [&str; 2] = ["/postern-probe", "/postern-probe/2/3/4.x"];

/// Returns the warnings about all patterns.
///
/// # Errors
/// The first unusable pattern.
pub(super) fn warnings(rules: &RulesArgs) -> Result<Vec<String>, ExitError> {
    let pass = pass_list(rules)?;
    let optional = optional_list(rules)?;
    let mut warnings: Vec<String> = Vec::new();
    warnings.extend(everything(&pass, "public-path", "no request needs a token"));
    warnings.extend(everything(
        &optional,
        "optional-auth-path",
        "no request needs a token, only a bad one is rejected",
    ));
    for (flag, list) in [("public-path", &pass), ("optional-auth-path", &optional)] {
        for pattern in list.patterns().iter().map(PathPattern::as_str) {
            let warning = of_pattern(path_of(pattern), &rules.app_name);
            warnings.extend(warning.map(|warning| format!("--{flag} '{pattern}': {warning}")));
        }
    }
    for pattern in optional.patterns() {
        if is_open(&pass, pattern.methods(), &pattern.example("x", "x")) {
            warnings.push(format!(
                "--optional-auth-path '{}': --public-path lists it too, so a token is never read there",
                pattern.as_str()
            ));
        }
    }
    Ok(warnings)
}

fn everything(list: &PassList, flag: &str, what: &str) -> Option<String> {
    if UNLISTED
        .iter()
        .all(|path| list.find_for(None, path).is_some())
    {
        return Some(format!("--{flag}: a pattern matches every path, so {what}"));
    }
    if UNLISTED.iter().all(|path| list.matches(path)) {
        return Some(format!(
            "--{flag}: a pattern matches every path for some methods, whose requests need no token"
        ));
    }
    list.matches(USER_DETAILS_PATH).then(|| {
        format!("--{flag}: a pattern matches {USER_DETAILS_PATH}, which still needs a token")
    })
}

/// Returns true if a pass list opens `path` to all of these methods.
pub(super) fn is_open(list: &PassList, methods: &Methods, path: &str) -> bool {
    if methods.are_all() {
        return list.find_for(None, path).is_some();
    }
    let mut each = methods.each();
    each.all(|method| list.find_for(Some(method), path).is_some())
}

/// Returns a pattern without its methods.
pub(crate) fn path_of(pattern: &str) -> &str {
    let path = pattern.find('/').and_then(|start| pattern.get(start..));
    path.unwrap_or(pattern)
}

/// Returns the warning about a single pattern of public paths.
fn of_pattern(pattern: &str, app_name: &str) -> Option<String> {
    misread(pattern, app_name).or_else(|| opens_too_much(pattern))
}

/// Returns the warning about a pattern that does not mean what it seems to.
pub(super) fn misread(pattern: &str, app_name: &str) -> Option<String> {
    let below = |context: &str| {
        let rest = pattern.strip_prefix(context);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if !app_name.is_empty() && below(&format!("/{app_name}")) {
        return Some(format!(
            "patterns are relative to the context path: this lists /{app_name}{pattern}"
        ));
    }
    if let Some((_, query)) = pattern.split_once('?')
        && query.contains('=')
    {
        return Some(
            "the query of a request is never compared: ? is any one character of the path"
                .to_owned(),
        );
    }
    None
}

/// Returns the warning about a pattern that opens more than it seems to.
fn opens_too_much(pattern: &str) -> Option<String> {
    if pattern.starts_with("/**/") && !pattern.trim_start_matches("/**").is_empty() {
        return Some(
            "matches below every path, and some services ignore the end of a path: /admin/x.js"
                .to_owned(),
        );
    }
    if pattern.len() > 1 && pattern.ends_with('/') {
        return Some(
            "matches only with the slash at the end, which many services drop; /** lists the paths below"
                .to_owned(),
        );
    }
    None
}

/// Returns a path that the pattern matches.
pub(crate) fn example(pattern: &str) -> String {
    path_of(pattern).replace("**", "x").replace(['*', '?'], "x")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::cli::{Cli, Command};

    fn warnings_of(flags: &[&str]) -> Vec<String> {
        let source = [
            "sidecar",
            "check",
            "--public-key-file",
            "f",
            "--issuer",
            "i",
            "--audience",
            "a",
        ];
        match runtime::command_line::parse_words::<Cli>([&source[..], flags].concat())
            .unwrap()
            .command
        {
            Command::Check(args) => warnings(&args.settings.rules).unwrap(),
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn each_misleading_pattern_gets_one_warning() {
        for (flags, warning) in [
            (
                &["--public-path", "/**"][..],
                Some("--public-path: a pattern matches every path"),
            ),
            (&["--public-path", "/*/**,/a"], Some("every path")),
            (&["--public-path", "/*,/*/**"], Some("every path")),
            (&["--public-path", "/*"], None),
            (&["--public-path", "/a/?"], None),
            (
                &["--public-path", "/x?y=1"],
                Some("--public-path '/x?y=1': the query of a request is never compared"),
            ),
            (&["--public-path", "/static/**,/a/*/b,/"], None),
            (
                &["--public-path", "/current/**"],
                Some("still needs a token"),
            ),
            (
                &["--public-path", "/**/*.js"],
                Some("--public-path '/**/*.js': matches below every path"),
            ),
            (
                &["--public-path", "/docs/"],
                Some("--public-path '/docs/': matches only with the slash"),
            ),
            (
                &["--public-path", "/orders/a", "--app-name", "orders"],
                Some("this lists /orders/orders/a"),
            ),
            (&["--public-path", "/ordersx", "--app-name", "orders"], None),
            (
                &["--optional-auth-path", "/**"],
                Some("--optional-auth-path: a pattern matches every path"),
            ),
            (
                &["--optional-auth-path", "/**/x"],
                Some("--optional-auth-path '/**/x'"),
            ),
            (
                &["--optional-auth-path", "/a/**", "--public-path", "/b"],
                None,
            ),
            (&["--public-path", "GET,HEAD /a/**"], None),
            (
                &["--public-path", "GET,HEAD /**"],
                Some("every path for some methods"),
            ),
            (
                &["--public-path", "GET /docs/"],
                Some("--public-path 'GET /docs/': matches only with the slash"),
            ),
            (
                &["--optional-auth-path", "/a/*", "--public-path", "GET /a/**"],
                None,
            ),
            (
                &[
                    "--optional-auth-path",
                    "GET /a/*",
                    "--public-path",
                    "GET /a/**",
                ],
                Some("--public-path lists it too"),
            ),
            (
                &["--optional-auth-path", "/a/*", "--public-path", "/a/**"],
                Some("--public-path lists it too"),
            ),
        ] {
            let said = warnings_of(flags);
            match warning {
                None => assert!(said.is_empty(), "{flags:?}: {said:?}"),
                Some(warning) => {
                    assert_eq!(said.len(), 1, "{flags:?}: {said:?}");
                    assert!(said[0].contains(warning), "{flags:?}: {said:?}");
                }
            }
        }
    }
}
