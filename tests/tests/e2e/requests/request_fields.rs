//! Fields from which services take another path or method than the request line's, from clients of
//! both versions of HTTP, and paths that are too long.

use postern_http::methods::METHOD_OVERRIDES;
use postern_http::path::canonical::MAX_PATH_BYTES;
use postern_http::path::overrides::{PATH_OVERRIDES, VARIABLE_OVERRIDES};
use serde_json::json;
use tests::actors::auth_server::AuthServer;
use tests::actors::client::Request;
use tests::actors::programs::repository;
use tests::actors::stack::ForgedStack;
use tests::wire::clock;
use tests::wire::h2_client::H2Client;
use tests::wire::raw_client::exchange;

const RULES: &str = r#"
public-path = ["GET /open/**", "MOVE /open/**", "/health"]

[[rule]]
name = "admin"
paths = ["/admin/**"]
scope = ["admin"]

[[rule]]
name = "delete"
methods = ["DELETE"]
paths = ["/**"]
scope = ["delete"]
"#;

/// The ways of a request to the service.
const WAYS: [Way; 2] = [Way::Http1, Way::Http2];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Http1,
    Http2,
}

/// A sidecar with rules, and the way to it.
struct Protected {
    stack: ForgedStack,
    way: Way,
}

impl Protected {
    fn by(way: Way, flags: &[&str]) -> Self {
        let stack = ForgedStack::with(|plan| plan.config(RULES).flags(flags));
        Self { stack, way }
    }

    /// Returns status and reason of a request with these fields below the context path.
    fn send(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> String {
        let (address, target) = (self.stack.sidecar.address(), format!("/orders{path}"));
        if self.way == Way::Http2 {
            let client = H2Client::connect(address);
            let names: Vec<_> = fields
                .iter()
                .map(|field| field.0.to_ascii_lowercase())
                .collect();
            let values = fields.iter().map(|field| field.1);
            let fields: Vec<_> = names.iter().map(String::as_str).zip(values).collect();
            let request = client.request(method, &target, &fields);
            return client.send(request, b"").unwrap().verdict();
        }
        let lines = fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}"));
        let request = Request::new(method, target).lines(lines);
        exchange(address, method, &request.bytes(&address.to_string())).verdict()
    }

    fn bearer(&self, scope: &str) -> String {
        let claims = json!({ "scope": scope });
        format!("Bearer {}", self.stack.forge.token(clock::now(), &claims))
    }
}

const TRUSTED: [&str; 2] = ["--trusted-proxy", "127.0.0.1"];

#[test]
fn a_field_with_another_path_comes_from_trusted_proxies_alone() {
    for way in WAYS {
        for flags in [&[][..], &TRUSTED, &["--trusted-proxy", "10.0.0.0/8"]] {
            let protected = Protected::by(way, flags);
            let bearer = protected.bearer("none");
            let alike = ["X_Original_URL", "x.rewrite_Url", "X_Forwarded_Prefix"];
            for name in PATH_OVERRIDES.iter().chain(&alike) {
                let field = (*name, "/orders/admin/1");
                let sent = protected.send("GET", "/list", &[("Authorization", &bearer), field]);
                assert_eq!(sent, "200", "{way:?} {flags:?} {name}");
                let seen = protected.stack.service.last_request();
                let expected = if flags == TRUSTED { 1 } else { 0 };
                let found = seen.header(name).len();
                assert_eq!(found, expected, "{way:?} {flags:?} {name}");
                let public = protected.send("GET", "/health", &[field]);
                assert_eq!(public, "200", "{way:?} {flags:?} {name}");
                let rejected = protected.send(
                    "GET",
                    "/admin/1",
                    &[("Authorization", &bearer), (name, "/orders/list")],
                );
                assert_eq!(
                    rejected, "403 insufficient_scope",
                    "{way:?} {flags:?} {name}"
                );
            }
        }
    }
}

/// Gunicorn and Daphne take such a prefix off the path before they look for the route; programs of CGI send
/// their own requests through the proxy.
#[test]
fn a_field_that_moves_the_root_reaches_no_service() {
    for way in WAYS {
        for flags in [&[][..], &TRUSTED] {
            let protected = Protected::by(way, flags);
            let alike = ["Script-Name", "daphne_root_path"];
            for name in VARIABLE_OVERRIDES.iter().chain(&alike) {
                let field = (*name, "/orders/open");
                let sent = protected.send("GET", "/open/orders/admin/1", &[field]);
                assert_eq!(sent, "200", "{way:?} {flags:?} {name}");
                let seen = protected.stack.service.last_request();
                assert!(seen.header(name).is_empty(), "{way:?} {flags:?} {name}");
            }
        }
    }
}

#[test]
fn a_field_with_another_method_leaves_any_method() {
    for way in WAYS {
        for flags in [&[][..], &TRUSTED] {
            let protected = Protected::by(way, flags);
            let bearer = protected.bearer("none");
            for name in METHOD_OVERRIDES {
                let field = (name, "GET");
                let sent = protected.send("POST", "/list", &[("Authorization", &bearer), field]);
                assert_eq!(sent, "403 insufficient_scope", "{way:?} {flags:?} {name}");
                let sent = protected.send("GET", "/open/a", &[field]);
                assert_eq!(sent, "401 token_missing", "{way:?} {flags:?} {name}");
            }
        }
    }
}

#[test]
fn another_site_cannot_hide_a_change_behind_a_get() {
    for way in WAYS {
        let protected = Protected::by(way, &["--token-cookie", "ticket"]);
        let cookie = format!("ticket={}", protected.stack.token());
        let from_elsewhere = [("Cookie", &*cookie), ("Sec-Fetch-Site", "cross-site")];
        let sent = protected.send("GET", "/list", &from_elsewhere);
        assert_eq!(sent, "200", "{way:?}");
        for name in METHOD_OVERRIDES {
            let fields = [&from_elsewhere[..], &[(name, "DELETE")]].concat();
            let sent = protected.send("GET", "/list", &fields);
            assert_eq!(sent, "403 cross_site", "{way:?} {name}");
        }
    }
}

#[test]
fn a_destination_is_matched_like_a_path() {
    let (missing, scope) = ("401 token_missing", "403 insufficient_scope");
    let bad = "400 request_destination";
    let rows = [
        ("MOVE", "/list", "/orders/b", missing, "200"),
        ("MOVE", "/list", "http://HOST/orders/b", missing, "200"),
        ("MOVE", "/list", "/orders/admin/b", missing, scope),
        (
            "COPY",
            "/list",
            "https://HOST/orders/ADMIN/b?c",
            missing,
            scope,
        ),
        ("copy", "/list", "/elsewhere", missing, scope),
        ("MOVE", "/open/a", "/orders/open/b", "200", "200"),
        ("MOVE", "/open/a", "/orders/list", missing, "200"),
        ("MOVE", "/open/a", "/orders/open/%2e%2e/x", bad, bad),
        ("MOVE", "/list", "http://other/orders/b", bad, bad),
        ("MOVE", "/list", "orders/b", bad, bad),
        ("GET", "/list", "Paris", missing, "200"),
    ];
    for way in WAYS {
        for flags in [&[][..], &TRUSTED] {
            let protected = Protected::by(way, flags);
            let host = protected.stack.sidecar.address().to_string();
            let bearer = protected.bearer("none");
            for (method, path, destination, without, with) in rows {
                let destination = destination.replace("HOST", &host);
                let field = ("Destination", &*destination);
                let found = protected.send(method, path, &[field]);
                assert_eq!(found, without, "{way:?} {method} {path} {destination}");
                let found = protected.send(method, path, &[("Authorization", &bearer), field]);
                assert_eq!(found, with, "{way:?} {method} {path} {destination}");
            }
        }
    }
}

#[test]
fn the_page_about_rules_names_every_field() {
    let page = std::fs::read_to_string(repository().join("docs/rules.md")).unwrap();
    let page = page.to_lowercase();
    let names = [
        &METHOD_OVERRIDES[..],
        &PATH_OVERRIDES,
        &VARIABLE_OVERRIDES,
        &["destination"],
    ];
    for name in names.concat() {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn a_path_past_8_kib_is_too_long() {
    let path = |length: usize| format!("/{}", "a".repeat(length - 1));
    for way in WAYS {
        let protected = Protected::by(way, &[]);
        let bearer = protected.bearer("none");
        let below_context = |length: usize| path(length - "/orders".len());
        for fields in [&[][..], &[("Authorization", &*bearer)]] {
            let found = protected.send("GET", &below_context(MAX_PATH_BYTES + 1), fields);
            assert_eq!(found, "414 path_too_long", "{way:?}");
        }
        let query = format!("/list?{}", "a".repeat(MAX_PATH_BYTES));
        for target in [&below_context(MAX_PATH_BYTES), &query] {
            let found = protected.send("GET", target, &[("Authorization", &bearer)]);
            assert_eq!(found, "200", "{way:?}");
        }
    }
    let server = AuthServer::start();
    let found = server.anonymous().verdict(&path(MAX_PATH_BYTES + 1));
    assert_eq!(found, "414 path_too_long");
    assert_eq!(server.anonymous().verdict(&path(4096)), "401 token_missing");
}
