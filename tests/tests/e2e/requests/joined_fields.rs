//! Values of fields that are fine alone and not once they are joined, split or carried to the other
//! version of HTTP, where one may end the connection that all requests share.

use std::net::SocketAddr;

use tests::actors::client::Request;
use tests::actors::stack::ForgedStack;
use tests::services::h2_service::H2Service;
use tests::wire::h2_client::H2Client;
use tests::wire::raw_client::exchange;

use super::http2::{bearer, chat};

const FLAGS: [&str; 4] = [
    "--public-path=/public/**",
    "--token-cookie=ticket",
    "--websocket-token",
    "--forward-authorization=false",
];
const PATH: &str = "/orders/public/x";

/// Cookies of one request, and the only field with which they reach a service across a change of the
/// version.
const COOKIES: [(&[&str], &str); 11] = [
    (&["a=b"], "a=b"),
    (&["a=b;"], "a=b;"),
    (&["a=b", ""], "a=b"),
    (&["", "a=b"], "a=b"),
    (&["a=b", "", "c=d", ""], "a=b; c=d"),
    (&["a=b;", "c=d"], "a=b;; c=d"),
    (&["a=b", ";"], "a=b; ;"),
    (&["", ""], ""),
    (&["a=b", "ticket=x", ""], "a=b"),
    (&["ticket=x", ""], ""),
    (&["ticket=x; ", "; a=b;"], "a=b"),
];

/// Values of a field, and what each service gets of them.
const FIELDS: [(&str, &[&str], &[&str]); 8] = [
    (
        "x-forwarded-for",
        &["", "192.0.2.1", "", "192.0.2.2"],
        &["192.0.2.1, 192.0.2.2, 127.0.0.1"],
    ),
    (
        "x-forwarded-for",
        &["192.0.2.1,"],
        &["192.0.2.1,, 127.0.0.1"],
    ),
    ("x-forwarded-for", &[""], &["127.0.0.1"]),
    (
        "forwarded",
        &["for=192.0.2.1", ""],
        &["for=192.0.2.1, for=127.0.0.1;proto=http"],
    ),
    (
        "sec-websocket-protocol",
        &["chat, bearer, a.b.c,", ""],
        &["chat"],
    ),
    ("sec-websocket-protocol", &["bearer, a.b.c, ,"], &[]),
    ("accept-encoding", &["gzip", ""], &["gzip", ""]),
    ("via", &["1.1 a", "", "2 b"], &["1.1 a", "", "2 b"]),
];

/// Sends a request with these values in fields of one name.
fn send(address: SocketAddr, is_http_2: bool, name: &str, values: &[&str]) -> String {
    if is_http_2 {
        let client = H2Client::connect(address);
        let fields: Vec<_> = values.iter().map(|value| (name, *value)).collect();
        let request = client.request("GET", PATH, &fields);
        return client.send(request, b"").unwrap().verdict();
    }
    let lines = values.iter().map(|value| format!("{name}: {value}"));
    let request = Request::new("GET", PATH).lines(lines);
    exchange(address, "GET", &request.bytes("a")).verdict()
}

/// Returns the values that the service of HTTP/2 got last.
fn seen_by(service: &H2Service, name: &str) -> Vec<String> {
    let seen = service.requests().pop().unwrap();
    let values = seen.head.headers().get_all(name).iter();
    values
        .map(|value| value.to_str().unwrap().to_owned())
        .collect()
}

#[test]
fn no_joined_value_ends_the_connection_that_all_share() {
    let service = H2Service::start();
    let stack = ForgedStack::before(&service.url(), &FLAGS);
    let address = stack.sidecar.address();
    let client = H2Client::connect(address);
    let bearer = bearer(&stack);
    let mut call = chat(&client, &bearer, "first");
    assert_eq!(call.read().unwrap().unwrap(), "first");
    for is_http_2 in [false, true] {
        for (cookies, joined) in COOKIES {
            // HTTP/2 has no blanks at the ends of values.
            let cookies: Vec<_> = cookies.iter().map(|cookie| cookie.trim()).collect();
            let found = send(address, is_http_2, "cookie", &cookies);
            assert_eq!(found, "200", "{cookies:?}");
            let expected: &[&str] = if joined.is_empty() { &[] } else { &[joined] };
            assert_eq!(seen_by(&service, "cookie"), expected, "{cookies:?}");
        }
        for (name, values, expected) in FIELDS {
            assert_eq!(send(address, is_http_2, name, values), "200", "{values:?}");
            assert_eq!(seen_by(&service, name), expected, "{name}: {values:?}");
        }
    }
    call.write(b"second").unwrap();
    assert_eq!(call.read().unwrap().unwrap(), "second");
    assert_eq!(service.connections(), 1);
}

#[test]
fn a_service_of_http_1_gets_cookies_as_sent_or_as_one_field() {
    let stack = ForgedStack::with(|plan| plan.flags(FLAGS));
    let address = stack.sidecar.address();
    for is_http_2 in [false, true] {
        for (cookies, joined) in COOKIES {
            let cookies: Vec<_> = cookies.iter().map(|cookie| cookie.trim()).collect();
            let found = send(address, is_http_2, "cookie", &cookies);
            assert_eq!(found, "200", "{cookies:?}");
            let seen = stack.service.last_request().header("cookie");
            let is_changed = is_http_2 || cookies.iter().any(|cookie| cookie.contains("ticket"));
            let as_one: &[&str] = if joined.is_empty() { &[] } else { &[joined] };
            let expected = if is_changed { as_one } else { &cookies };
            assert_eq!(seen, expected, "{cookies:?}");
        }
        for (name, values, expected) in FIELDS {
            assert_eq!(send(address, is_http_2, name, values), "200", "{values:?}");
            let seen = stack.service.last_request().header(name);
            assert_eq!(seen, expected, "{name}: {values:?}");
        }
    }
}

#[test]
fn blanks_at_the_ends_of_a_response_s_values_reach_no_client() {
    let service = H2Service::start();
    let stack = ForgedStack::before(&service.url(), &FLAGS);
    let address = stack.sidecar.address();
    let path = "/orders/public/blanks";
    let client = H2Client::connect(address);
    let response = client.send(client.request("GET", path, &[]), b"").unwrap();
    assert_eq!(response.head.headers()["x-blanks"], "a b");
    assert_eq!(response.trailers["grpc-message"], "it failed:");
    let response = exchange(address, "GET", &Request::new("GET", path).bytes("a"));
    let lines = response.header_lines();
    assert!(lines.contains(&"x-blanks: a b".to_owned()), "{lines:?}");
}
