//! Streams end when the token that opened them does; nothing else is cut.

use std::time::Duration;

use serde_json::json;
use tests::actors::client::Request;
use tests::actors::expect::has;
use tests::actors::sidecar::Sidecar;
use tests::actors::stack::ForgedStack;
use tests::services::h2_service::H2Service;
use tests::services::streaming_service::StreamingService;
use tests::wait;
use tests::wire::clock;
use tests::wire::h2_client::H2Client;
use tests::wire::raw_client::{HANDSHAKE, RawClient, head_with_token};

/// Seconds: enough for a slow machine to open a stream, and short enough to wait for.
const LIFETIME: i64 = 4;

/// The log line about an ended stream.
const ENDED: &str = "the token of the stream has expired";

fn before(upstream: &str, flags: &[&str]) -> ForgedStack {
    ForgedStack::before(upstream, &[&["--leeway", "0"], flags].concat())
}

fn request(path: &str, token: &str, lines: &str) -> Vec<u8> {
    head_with_token("GET", &format!("/orders/{path}"), token, lines)
}

fn short_token(stack: &ForgedStack) -> String {
    let now = clock::now();
    stack.forge.token(now, &json!({"exp": now + LIFETIME}))
}

/// Waits for the count, which follows the close of the connections.
fn wait_for_ended_streams(sidecar: &Sidecar, count: u64) {
    wait::until("the ended streams to be counted", || {
        sidecar.metric("postern_sidecar_streams_expired_total") == Some(count)
    });
}

#[test]
fn a_websocket_is_closed_on_both_sides_when_its_token_expires() {
    let service = StreamingService::start();
    let stack = before(&service.url(), &["--access-log", "all"]);
    let mut client = RawClient::connect(stack.sidecar.address());
    client.send(&request("websocket", &short_token(&stack), HANDSHAKE));
    assert_eq!(client.response("GET").status(), 101);
    client.send(b"hello");
    assert_eq!(client.bytes(5), b"hello");
    assert!(client.is_at_end());
    service.wait_for_broken_off(1);
    wait_for_ended_streams(&stack.sidecar, 1);
    let line = stack.sidecar.process().line_with(ENDED);
    let logged = line.contains("method=\"GET\"") && line.contains("path=/orders/websocket");
    assert!(logged, "{line}");
}

#[test]
fn a_grpc_call_ends_with_the_token_and_the_connection_goes_on() {
    let service = H2Service::start();
    let flags = [
        "--access-log=all",
        "--request-id",
        "--upstream-read-timeout=1",
    ];
    let stack = before(&service.url(), &flags);
    let client = H2Client::connect(stack.sidecar.address());
    let call = |token: &str| {
        let bearer = format!("Bearer {token}");
        let fields = [
            ("authorization", &*bearer),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("x-request-id", "call-1"),
            (
                "traceparent",
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            ),
        ];
        client.open(client.request("POST", "/orders/pkg.Service/Chat", &fields))
    };
    let (mut short, mut long) = (call(&short_token(&stack)), call(&stack.token()));
    for call in [&mut short, &mut long] {
        call.write(b"x").unwrap();
        assert_eq!(call.head().unwrap().status(), 200);
        assert_eq!(call.read().unwrap().unwrap(), "x");
    }
    assert!(short.read().is_err(), "reset");
    // Silent for longer than the timeout of a response.
    long.write(b"y").unwrap();
    assert_eq!(long.read().unwrap().unwrap(), "y");
    let seen = service.requests().pop().unwrap();
    assert_eq!(seen.head.headers()["te"], "trailers");
    wait_for_ended_streams(&stack.sidecar, 1);
    let line = stack.sidecar.process().line_with(ENDED);
    for part in [
        "method=\"POST\"",
        "path=/orders/pkg.Service/Chat",
        "request_id=call-",
        "trace_id=4bf92f3577b34da6a3ce929d0e0e4736",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

const ACCEPT_EVENTS: &str = "Accept: text/event-stream\r\n";

#[test]
fn a_client_without_a_token_gets_no_time_by_requesting_a_stream() {
    let service = StreamingService::start();
    let flags = ["--public-path=/public/**", "--upstream-read-timeout", "1"];
    let stack = before(&service.url(), &flags);
    let get = |path: &str| {
        let mut client = RawClient::connect(stack.sidecar.address());
        let head = format!("GET /orders/public/{path} HTTP/1.1\r\nHost: a\r\n{ACCEPT_EVENTS}\r\n");
        client.send(head.as_bytes());
        client
    };
    let response = get("silent").response("GET");
    assert_eq!(response.verdict(), "504 upstream_timeout");
    let mut events = get("events");
    events.text_until("data: first");
    assert!(events.is_at_end());

    let fields = [("content-type", "application/grpc")];
    // Behind the part that the sidecar holds, the pace of any body ends it.
    for (timeout, sent) in [("1", 1), ("0", 64 * 1024)] {
        let flags = [
            "--public-path=/public/**",
            "--request-body-timeout",
            timeout,
        ];
        let stack = before(&service.url(), &flags);
        let client = H2Client::connect(stack.sidecar.address());
        let mut call = client.open(client.request("POST", "/orders/public/upload", &fields));
        call.write(&vec![b'x'; sent]).unwrap();
        let head = call.head().unwrap();
        let message = head.headers()["grpc-message"].to_str().unwrap();
        assert!(message.starts_with("request_timeout"), "{message}");
    }
}

#[test]
fn what_a_token_opens_may_be_silent_once_it_is_a_stream() {
    let service = StreamingService::start();
    let flags = ["--upstream-read-timeout", "1", "--access-log", "all"];
    let stack = before(&service.url(), &flags);
    let get = |token: &str, path: &str| {
        let mut client = RawClient::connect(stack.sidecar.address());
        client.send(&request(path, token, ACCEPT_EVENTS));
        client
    };
    let mut events = get(&short_token(&stack), "events");
    events.text_until("data: first");
    assert!(events.is_at_end());
    wait_for_ended_streams(&stack.sidecar, 1);

    let token = stack.token();
    assert!(get(&token, "silent").is_at_end());
    let line = stack
        .sidecar
        .process()
        .line_with("reason=\"upstream_timeout\"");
    let authority = service.url().replace("http://", "");
    has(&line, &authority);

    // Plain downloads are not cut, nor are uploads that take longer than the response timeout.
    let mut download = get(&token, "download");
    download.text_until("half");
    let mut upload = RawClient::connect(stack.sidecar.address());
    let head = format!(
        "POST /orders/upload HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n{ACCEPT_EVENTS}\
         Transfer-Encoding: chunked\r\n\r\n"
    );
    upload.send(head.as_bytes());
    for byte in 0..5_usize {
        upload.send(b"1\r\nx\r\n");
        wait::until("the byte to arrive", || service.received() > byte);
        std::thread::sleep(Duration::from_millis(400));
    }
    upload.send(b"0\r\n\r\n");
    assert_eq!(upload.response("POST").text(), "5");
    service.go_on();
    assert_eq!(download.text_until("more"), "more");
}

#[test]
fn a_stream_without_a_response_ends_with_its_token() {
    let service = StreamingService::start();
    let stack = before(&service.url(), &["--upstream-read-timeout", "0"]);
    let clients = [ACCEPT_EVENTS, HANDSHAKE].map(|lines| {
        let mut client = RawClient::connect(stack.sidecar.address());
        client.send(&request("silent", &short_token(&stack), lines));
        client
    });
    for mut client in clients {
        assert!(client.is_at_end());
    }
    wait_for_ended_streams(&stack.sidecar, 2);
}

#[test]
fn streams_may_outlive_their_token_where_configured() {
    let service = StreamingService::start();
    let stack = before(&service.url(), &["--close-streams-on-expiry", "false"]);
    let token = short_token(&stack);
    let mut client = RawClient::connect(stack.sidecar.address());
    client.send(&request("websocket", &token, HANDSHAKE));
    assert_eq!(client.response("GET").status(), 101);
    let bearer = stack.sidecar.bearing(&token);
    wait::until("the token to expire", || bearer.status("/list") == 401);
    client.send(b"hello");
    assert_eq!(client.bytes(5), b"hello");
}

#[test]
fn a_browser_announces_the_token_of_a_websocket_as_a_protocol() {
    let service = StreamingService::start();
    let stack = before(&service.url(), &["--websocket-token"]);
    let (sidecar, off) = (&stack.sidecar, stack.in_front_of(&service.url(), &[]));
    let token = stack.token();
    let open = |sidecar: &Sidecar, protocols: &str| {
        let mut client = RawClient::connect(sidecar.address());
        let head = format!(
            "GET /orders/websocket HTTP/1.1\r\nHost: a\r\n{HANDSHAKE}\
             Sec-WebSocket-Protocol: {protocols}\r\n\r\n"
        );
        client.send(head.as_bytes());
        client.response("GET")
    };
    for (protocols, seen, chosen) in [
        (format!("bearer, {token}"), None, "bearer"),
        (format!("bearer, {token}, chat"), Some("chat"), "chat"),
        (format!("chat, bearer, {token}"), Some("chat"), "chat"),
    ] {
        let response = open(sidecar, &protocols);
        assert_eq!(response.status(), 101);
        assert_eq!(response.header("sec-websocket-protocol"), [chosen]);
        let head = service.heads().pop().unwrap();
        assert!(!head.contains(&token), "{head}");
        let lower = head.to_ascii_lowercase();
        let found = lower.contains("sec-websocket-protocol:");
        assert_eq!(found, seen.is_some(), "{head}");
        has(&head, "X-Current-User: ");
    }
    for protocols in ["bearer, a.b.c", "bearer", "chat"] {
        assert_eq!(open(sidecar, protocols).status(), 401, "{protocols}");
    }
    assert_eq!(open(&off, &format!("bearer, {token}")).status(), 401);
    let plain = Request::new("GET", "/orders/list");
    let plain = plain.line(format!("Sec-WebSocket-Protocol: bearer, {token}"));
    let rejected = sidecar.anonymous().send(&plain).verdict();
    assert_eq!(rejected, "401 token_missing", "no WebSocket is requested");
    assert!(!sidecar.process().output().contains(&token));
}

#[test]
fn events_end_when_their_reader_leaves_whatever_it_sent_before() {
    let service = StreamingService::start();
    let stack = before(&service.url(), &[]);
    for ahead in ["", "G", "\r\n"] {
        let mut events = RawClient::connect(stack.sidecar.address());
        events.send(&request("events", &stack.token(), ACCEPT_EVENTS));
        events.text_until("data: first");
        events.send(ahead.as_bytes());
    }
    service.wait_for_broken_off(3);
}
