//! Fields from which services take another path than the one in the request line, another root, or a proxy.

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

/// Fields from which application servers take variables of the service: its root, which Gunicorn (RFC 3875
/// §4.1) and Daphne cut off the path, and the proxy of its own requests (`HTTP_PROXY`, CVE-2016-5385). No
/// gateway has to send them.
pub const VARIABLE_OVERRIDES: [&str; 4] = ["script_name", "path_info", "daphne-root-path", "proxy"];

/// Returns true for the name of a field that names another path than the request line, or a name
/// that becomes the same variable.
pub fn names_another_path(field: &str) -> bool {
    PATH_OVERRIDES.iter().any(|name| cgi_equal(name, field))
}

/// Returns true for the name of a field that sets such a variable, or a name that becomes the same one.
pub fn sets_a_variable(field: &str) -> bool {
    VARIABLE_OVERRIDES.iter().any(|name| cgi_equal(name, field))
}
