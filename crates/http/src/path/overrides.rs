//! Fields from which services take another path than the one in the request line, or another root.

use crate::header_alias::cgi_equal;

/// Fields from which some services take a path in place of the one in the request line, and which
/// gateways send by themselves.
pub const PATH_OVERRIDES: [&str; 9] = [
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
    "x-forwarded-uri",
    "x-envoy-original-path",
    "x-ms-original-url",
    "x-script-name",
    // ASP.NET, Spring and Werkzeug put it before the path, or cut it off.
    "x-forwarded-prefix",
    "x-forwarded-path",
];

/// Fields from which application servers take the root of the service, and cut it off the path:
/// Gunicorn (variables of RFC 3875 §4.1) and Daphne. No gateway has to send them.
pub const ROOT_OVERRIDES: [&str; 3] = ["script_name", "path_info", "daphne-root-path"];

/// Returns true for the name of a field that names another path than the request line, or a name
/// that becomes the same variable.
pub fn names_another_path(field: &str) -> bool {
    PATH_OVERRIDES.iter().any(|name| cgi_equal(name, field))
}

/// Returns true for the name of a field that moves the root of the service, or a name that becomes
/// the same variable.
pub fn moves_the_root(field: &str) -> bool {
    ROOT_OVERRIDES.iter().any(|name| cgi_equal(name, field))
}
