//! The documents by which clients find the issuer, its endpoints and its keys (RFC 8414).

use tests::actors::auth_server::{AuthServer, AuthServerPlan};
use tests::actors::client::Request;

#[test]
fn rfc_8414_metadata_is_there_only_where_the_issuer_is_a_url() {
    let url = "https://login.example/auth";
    let documents = [
        "/auth/.well-known/oauth-authorization-server",
        "/auth/.well-known/openid-configuration",
        "/.well-known/oauth-authorization-server/auth",
        "/.well-known/openid-configuration/auth",
    ];
    let get = |server: &AuthServer, path: &str| server.anonymous().send(&Request::new("GET", path));
    let server = AuthServerPlan::new().flags(["--issuer", url]).ready();
    for path in documents {
        let response = get(&server, path);
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.header("content-type"), ["application/json"]);
        assert_eq!(response.json()["issuer"], url);
        let post = server.anonymous().send(&Request::new("POST", path));
        assert_eq!(post.verdict(), "405 method_not_allowed", "{path}");
        let beside = get(&server, &format!("{path}/x"));
        assert_eq!(beside.verdict(), "401 token_missing", "{path}/x");
    }
    let server = AuthServer::start();
    for path in documents {
        assert_eq!(get(&server, path).verdict(), "401 token_missing", "{path}");
    }
}

/// MCP clients require the endpoint in the metadata of every server, also of one for programs alone.
#[test]
fn the_authorization_endpoint_redirects_no_browser() {
    let server = AuthServer::start();
    let query = "response_type=code&client_id=x&state=evil-state\
                 &redirect_uri=https%3A%2F%2Fevil.example%2Fcallback";
    let long = format!("{query}&x={}", "a".repeat(4000));
    for (method, target, body) in [
        ("GET", "/auth/oauth/authorize".to_owned(), ""),
        ("GET", format!("/auth/oauth/authorize?{query}"), ""),
        ("GET", format!("/auth/oauth/authorize?{long}"), ""),
        ("POST", "/auth/oauth/authorize".to_owned(), query),
        (
            "POST",
            "/auth/oauth/authorize?response_type=none".to_owned(),
            "",
        ),
    ] {
        let request = Request::new(method, target.clone()).body(body);
        let response = server.anonymous().send(&request);
        assert_eq!(response.status(), 400, "{method} {target}");
        assert!(response.header("location").is_empty(), "{method} {target}");
        let found = response.json();
        assert_eq!(found["error"], "unsupported_response_type");
        assert_eq!(found["reason"], "response_type_unsupported");
        assert!(!response.text().contains("evil"), "{}", response.text());
        assert_eq!(response.header("cache-control"), ["no-store"]);
    }
    let other = server
        .anonymous()
        .send(&Request::new("PUT", "/auth/oauth/authorize"));
    assert_eq!(other.verdict(), "405 method_not_allowed");
}
