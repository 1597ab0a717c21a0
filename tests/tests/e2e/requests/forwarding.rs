//! Everything else is forwarded unchanged, in both directions.

use tests::actors::stack::ForgedStack;
use tests::services::echo_service::MARK;
use tests::services::socket_server::response;
use tests::wire::raw_client::{RawClient, exchange};

/// Starts a protected service with one pass-listed tree.
pub(crate) fn stack() -> ForgedStack {
    ForgedStack::with_public(["--forwarded", "off"])
}

/// Returns the header lines that the sidecar neither adds nor manages for its own connection. A
/// blank behind the colon of an empty field is no part of it (RFC 9110 §5.5).
fn end_to_end(lines: &[String]) -> Vec<String> {
    const OURS: [&str; 3] = ["x-current-user", "connection", "content-length"];
    let name = |line: &String| {
        line.split(':')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    lines
        .iter()
        .filter(|line| !OURS.contains(&name(line).as_str()))
        .map(|line| line.trim_end().to_owned())
        .collect()
}

#[test]
fn method_target_headers_and_body_reach_the_service_unchanged() {
    let stack = stack();
    let authorization = format!("Authorization: Bearer {}", stack.token());
    let lines = [
        "Host: service.example:8080",
        authorization.as_str(),
        "Verified-Ticket: ticket-1",
        "Accept: application/json",
        "x-lower-case: 1",
        "X-Repeated: b",
        "X-Repeated: a",
        "Cookie: a=1; b=\"2\"",
        "X-Empty:",
        "X-Forwarded-For: 203.0.113.7",
        "Forwarded: for=203.0.113.7",
        "Accept-Encoding: gzip, br",
        "User-Agent: curl/8",
        "Content-Type: application/octet-stream",
        "If-None-Match: \"x\"",
        "Range: bytes=0-1",
    ];
    for method in [
        "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT",
    ] {
        let body: Vec<u8> = (0..=255).collect();
        let target =
            "/orders/a%20b/%E4%BD%A0;v=1//c%2fd?q=1&q=2&x=%00%ff&redirect=/public/../x&empty=&=&?";
        let mut request =
            format!("{method} {target} HTTP/1.1\r\n{}\r\n", lines.join("\r\n")).into_bytes();
        request.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        request.extend_from_slice(&body);
        let response = exchange(stack.sidecar.address(), method, &request);
        assert_eq!(response.status(), 200, "{method}: {}", response.text());
        let seen = stack.service.last_request();
        assert_eq!(seen.method(), method);
        assert_eq!(String::from_utf8_lossy(&seen.target()), target);
        assert_eq!(end_to_end(&seen.header_lines()), lines, "{method}");
        assert_eq!(seen.header("content-length"), ["256"]);
        assert_eq!(seen.body, body, "{method}");
    }
}

#[test]
fn the_service_s_response_reaches_the_client_unchanged() {
    let stack = stack();
    let client = stack.sidecar.bearing(&stack.token());
    let body: Vec<u8> = (0..=255).rev().collect();
    let statuses = "200 OK|201 Created|202 Accepted|301 Moved Permanently|400 Bad Request|401 Unauthorized|\
         403 Forbidden|404 Not Found|418 I'm a teapot|500 Internal Server Error|\
         503 Service Unavailable";
    for status in statuses.split('|') {
        let lines = [
            format!("{MARK}: 1"),
            "Set-Cookie: a=1".to_owned(),
            "Set-Cookie: b=2".to_owned(),
            "Content-Type: application/x-own".to_owned(),
            "WWW-Authenticate: Own realm=\"x\"".to_owned(),
            "Location: /elsewhere?x=1".to_owned(),
            "X-Own-Case: 1".to_owned(),
            "Content-Encoding: identity".to_owned(),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        stack.service.responds(response(status, &lines, &body));
        let response = client.get("/list");
        assert_eq!(response.first_line(), format!("HTTP/1.1 {status}"));
        assert_eq!(response.body, body, "{status}");
        let seen = response.header_lines();
        for line in &lines {
            assert!(
                seen.iter().any(|seen| seen == line),
                "{status}: {line} in {seen:?}"
            );
        }
        assert_eq!(response.header("set-cookie"), ["a=1", "b=2"]);
        assert_eq!(response.header("www-authenticate"), ["Own realm=\"x\""]);
    }
}

#[test]
fn one_connection_has_many_requests_with_own_verdicts() {
    let stack = stack();
    let token = stack.token();
    let mut client = RawClient::connect(stack.sidecar.address());
    for _ in 0..3 {
        client.send(
            format!(
                "GET /orders/list HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n"
            )
            .as_bytes(),
        );
        assert_eq!(client.response("GET").status(), 200);
        client.send(b"GET /orders/public/x HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response("GET").status(), 200);
        client.send(b"GET /orders/list HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response("GET").verdict(), "401 token_missing");
    }
    assert_eq!(stack.service.requests().len(), 6);
    let users: Vec<usize> = stack
        .service
        .requests()
        .iter()
        .map(|request| request.header("X-Current-User").len())
        .collect();
    let expected = [1, 0, 1, 0, 1, 0];
    assert_eq!(users, expected, "no user stays behind on the connection");
}
