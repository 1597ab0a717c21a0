//! HTTP/2 without TLS, beside HTTP/1.1 on the same port: the same rules, the same responses.

mod frames;
mod shared_connection;

use serde_json::Value;
use tests::actors::stack::ForgedStack;
use tests::services::h2_service::{H2Service, TRAILER};
use tests::wait;
use tests::wire::h2_client::{H2Client, OpenStream};
use tests::wire::h2_frames::{Fate, FrameClient, fields_of, get_fields};
use tests::wire::raw_client::exchange;

use super::forwarding::stack;

fn in_front_of(service: &H2Service, flags: &[&str]) -> ForgedStack {
    ForgedStack::before(
        &service.url(),
        &[flags, &["--public-path=/public/**"]].concat(),
    )
}

/// Opens a gRPC call and waits for its head.
pub(super) fn chat<'c>(client: &'c H2Client, bearer: &str, first: &str) -> OpenStream<'c> {
    let fields = [
        ("authorization", bearer),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let mut call = client.open(client.request("POST", "/orders/pkg.Service/Chat", &fields));
    call.write(first.as_bytes()).unwrap();
    assert_eq!(call.head().unwrap().status(), 200);
    call
}

pub(super) fn bearer(stack: &ForgedStack) -> String {
    format!("Bearer {}", stack.token())
}

#[test]
fn an_http_2_client_reaches_an_http_1_service() {
    let stack = stack();
    let client = H2Client::connect(stack.sidecar.address());
    let bearer = bearer(&stack);
    let fields = [
        ("authorization", &*bearer),
        ("x-current-user", "forged"),
        ("x_current_user", "forged"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("te", "trailers"),
        ("accept", "text/plain"),
    ];
    let request = client.request("POST", "/orders/a%20b//c?d=%2F&e", &fields);
    let response = client.send(request, b"hello").unwrap();
    assert_eq!(response.verdict(), "200");
    assert_eq!(response.body, b"echo");
    let seen = stack.service.last_request();
    assert_eq!(seen.method(), "POST");
    assert_eq!(seen.target(), b"/orders/a%20b//c?d=%2F&e");
    assert_eq!(seen.body, b"hello");
    assert_eq!(seen.header("host"), [stack.sidecar.address().to_string()]);
    assert_eq!(seen.header("cookie"), ["a=1; b=2"]);
    assert_eq!(seen.header("accept"), ["text/plain"]);
    assert_eq!(seen.header("te"), Vec::<String>::new());
    // The service may leave the body unread: its connection takes no further request.
    assert_eq!(seen.header("connection"), ["close"]);
    assert_eq!(seen.header("x_current_user"), Vec::<String>::new());
    let user: Value = serde_json::from_str(&seen.header("x-current-user")[0]).unwrap();
    assert!(user["id"].is_string(), "{user}");
}

#[test]
fn rejections_and_own_responses_equal_those_of_http_1() {
    let stack = stack();
    let client = H2Client::connect(stack.sidecar.address());
    let bearer = bearer(&stack);
    let token = [("authorization", &*bearer)];
    let two = [("authorization", &*bearer), ("authorization", &*bearer)];
    let (list, details) = ("/orders/list", "/orders/current/user/details");
    let escaped = "/orders/public/%2e%2e/list";
    let bad = [("authorization", "Bearer x")];
    let alike = [("content_length", "3")];
    for (method, path, fields, expected) in [
        ("GET", list, &[][..], "401 token_missing"),
        ("GET", list, &token, "200"),
        ("GET", "/orders/public/x", &[], "200"),
        ("GET", list, &bad, "401 token_malformed"),
        ("GET", list, &two, "400 authorization_repeated"),
        ("GET", escaped, &token, "400 path_not_canonical"),
        ("GET", details, &token, "200"),
        ("POST", details, &token, "405 method_not_allowed"),
        ("GET", "/orders/public/x", &alike, "400 request_framing"),
    ] {
        let request = client.request(method, path, fields);
        let response = client.send(request, b"").unwrap();
        assert_eq!(response.verdict(), expected, "{method} {path}");
        // RFC 6750 §3.1: a repeated field is an invalid request for a token.
        let challenged =
            response.head.status() == 401 || expected.ends_with("authorization_repeated");
        let found = response.head.headers().contains_key("www-authenticate");
        assert_eq!(found, challenged, "{expected}");
    }
    assert_eq!(stack.service.requests().len(), 2);
}

#[test]
fn a_rejected_upload_gets_its_response_and_the_connection_stays() {
    let stack = stack();
    let client = H2Client::connect(stack.sidecar.address());
    for _ in 0..5 {
        let request = client.request("POST", "/orders/upload", &[]);
        let response = client.send(request, &vec![b'x'; 1024 * 1024]).unwrap();
        assert_eq!(response.verdict(), "401 token_missing");
    }
    let bearer = bearer(&stack);
    let request = client.request("GET", "/orders/list", &[("authorization", &bearer)]);
    assert_eq!(client.send(request, b"").unwrap().verdict(), "200");
}

/// Stays within the sidecar's buffer for an unread response: see docs/limits.md.
#[test]
fn large_bodies_pass_whole_both_ways_many_at_once() {
    let service = H2Service::start();
    let stack = in_front_of(&service, &[]);
    let bearer = bearer(&stack);
    let echoed = |bytes: usize| {
        let client = H2Client::connect(stack.sidecar.address());
        let body = vec![b'x'; bytes];
        let fields = [("authorization", &*bearer)];
        let request = client.request("POST", "/orders/upload", &fields);
        let response = client.send(request, &body).unwrap();
        assert!(response.body == body);
        assert_eq!(response.trailers[TRAILER], bytes.to_string());
    };
    echoed(4 * 1024 * 1024);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| echoed(512 * 1024));
        }
    });
}

fn usual<'a>(path: &'a str, authorization: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut fields = get_fields(path);
    fields.push(("authorization", authorization));
    fields
}

#[test]
fn trailers_pass_without_the_fields_that_the_sidecar_sets() {
    let service = H2Service::start();
    let flags = ["--client-cert-header=X-Cert", "--trusted-proxy=127.0.0.1"];
    let stack = in_front_of(&service, &flags);
    let bearer = bearer(&stack);
    let mut client = FrameClient::connect(stack.sidecar.address());
    let mut fields = usual("/orders/upload", &bearer);
    fields[0].1 = "POST";
    client.head(1, &fields, false);
    client.frame(0, 0, 1, b"x");
    let trailers = [
        ("checksum", "1"),
        ("x-current-user", "{\"id\":\"0\"}"),
        ("x_current_user", "{}"),
        ("authorization", "Bearer x"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-original-url", "/admin"),
        ("x-cert", "Hash=0"),
        ("x_cert", "Hash=0"),
        ("dpop", "x"),
        ("proxy", "http://192.0.2.1"),
        ("x-request-id", "1"),
        (
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ),
        ("tracestate", "a=b"),
    ];
    client.head(1, &trailers, true);
    assert!(matches!(client.fate(1), Fate::Response(_)));
    let seen = service.requests().pop().unwrap().trailers;
    let names: Vec<_> = seen.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["checksum"]);
}

#[test]
fn open_streams_end_before_the_process_does() {
    let service = H2Service::start();
    let stack = in_front_of(&service, &["--lame-duck", "0"]);
    let client = H2Client::connect(stack.sidecar.address());
    let bearer = bearer(&stack);
    let mut call = chat(&client, &bearer, "x");
    let address = stack.sidecar.address();
    stack.sidecar.process().terminate();
    wait::until("the port to be closed", || {
        std::net::TcpStream::connect(address).is_err()
    });
    call.write(b"y").unwrap();
    call.finish().unwrap();
    while call.read().unwrap().is_some() {}
    assert_eq!(call.trailers().unwrap().unwrap()[TRAILER], "2");
    assert_eq!(stack.sidecar.into_process().finished().code, Some(0));
}

#[test]
fn a_drain_sends_clients_elsewhere_and_serves_what_still_comes() {
    let service = H2Service::start();
    let stack = in_front_of(&service, &[]);
    let client = H2Client::connect(stack.sidecar.address());
    let public = |client: &H2Client| client.request("POST", "/orders/public/x", &[]);
    let mut call = chat(&client, &bearer(&stack), "x");
    let admin = stack.sidecar.admin();
    let drain = format!("POST /drain HTTP/1.1\r\nHost: {admin}\r\n\r\n");
    assert_eq!(exchange(admin, "POST", drain.as_bytes()).status(), 200);
    wait::until("a connection without new streams", || {
        client.try_open(public(&client)).is_err()
    });
    call.write(b"y").unwrap();
    call.finish().unwrap();
    while call.read().unwrap().is_some() {}
    assert_eq!(call.trailers().unwrap().unwrap()[TRAILER], "2");
    let late = H2Client::connect(stack.sidecar.address());
    assert_eq!(late.send(public(&late), b"z").unwrap().verdict(), "200");
}
