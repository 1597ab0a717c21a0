//! Clients that take more than they need: time, connections, memory. The other clients lose
//! nothing.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use tests::actors::auth_server::{AuthServerPlan, LOGIN};
use tests::actors::stack::ForgedStack;
use tests::wait;
use tests::wire::h2_client::H2Client;
use tests::wire::metrics::{rejections, sum};
use tests::wire::raw_client::{RawClient, exchange};

/// Sends `byte` over and over until the peer has closed.
fn drip(mut connection: TcpStream, byte: &'static [u8]) {
    std::thread::spawn(move || {
        while connection.write_all(byte).is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

fn is_closed_without_a_word(response: &io::Result<tests::wire::message::Message>) -> bool {
    response.as_ref().is_err_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
        )
    })
}

#[test]
fn a_header_that_drips_past_its_time_is_408() {
    let stack = ForgedStack::with_public(["--request-header-timeout", "1"]);
    for (begun, dripped) in [
        (&b"GET / HTTP/1.1\r\nHo"[..], &b""[..]),
        (b"GET /orders/public/x HTTP/1.1\r\nHost: a\r\nX: ", b"a"),
        (b"G", b"G"),
    ] {
        let mut client = RawClient::connect(stack.sidecar.address());
        client.send(begun);
        if !dripped.is_empty() {
            drip(client.handle(), dripped);
        }
        let response = client.response("GET");
        assert_eq!(response.verdict(), "408 request_timeout", "{begun:?}");
        assert_eq!(response.header("connection"), ["close"]);
    }
    wait::until("their count", || {
        rejections(stack.sidecar.admin(), "request_timeout") == 3
    });
}

#[test]
fn who_says_nothing_is_closed_without_a_word() {
    let stack = ForgedStack::with_public(["--request-header-timeout", "1"]);
    let mut silent = RawClient::connect(stack.sidecar.address());
    assert!(is_closed_without_a_word(&silent.try_response("GET")));
    let mut blank = RawClient::connect(stack.sidecar.address());
    drip(blank.handle(), b"\r\n");
    assert!(is_closed_without_a_word(&blank.try_response("GET")));
}

#[test]
fn connections_beyond_the_share_of_one_client_close() {
    let stack = ForgedStack::with_public(["--max-connections", "5"]);
    let admin = stack.sidecar.admin();
    let begin = || {
        let mut client = RawClient::connect(stack.sidecar.address());
        client.send(b"POST /orders/public/x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n");
        client
    };
    let mut held: Vec<_> = (0..4).map(|_| begin()).collect();
    stack.sidecar.until_in_flight(4);
    for _ in 0..3 {
        assert!(is_closed_without_a_word(&begin().try_response("POST")));
    }
    let rejected = "postern_sidecar_connections_rejected_total";
    for (metric, count) in [("postern_sidecar_connections", 4), (rejected, 3)] {
        wait::until(metric, || sum(admin, metric, &[]) == count);
    }
    let warning = "max of 5 connections reached";
    stack.sidecar.until_logged(warning);
    held.truncate(3);
    wait::until("a free slot", || {
        let mut client = begin();
        client.send(b"x");
        client.try_response("POST").ok()
    });
    assert_eq!(stack.sidecar.until_logged(warning), 1);
}

#[test]
fn clients_behind_a_trusted_proxy_have_a_share_each() {
    let stack = ForgedStack::with_public(["--max-requests", "4", "--trusted-proxy", "127.0.0.1"]);
    let proxy = H2Client::connect(stack.sidecar.address());
    let of = |client| [("x-forwarded-for", client)];
    let (first, second) = (of("2001:db8::1"), of("2001:db8:0:1::1"));
    let held: Vec<_> = (0..3)
        .map(|_| proxy.open(proxy.request("POST", "/orders/public/slow", &first)))
        .collect();
    stack.sidecar.until_in_flight(3);
    let get = |fields: &[_]| {
        let request = proxy.request("GET", "/orders/public/x", fields);
        proxy.send(request, b"").unwrap().verdict()
    };
    assert_eq!(get(&of("2001:db8::2")), "503 server_busy", "the same /64");
    assert_eq!(get(&second), "200");
    let over_http_1 = |client| {
        let request = format!(
            "GET /orders/public/x HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\n\r\n"
        );
        exchange(stack.sidecar.address(), "GET", request.as_bytes()).verdict()
    };
    assert_eq!(over_http_1("2001:db8::1"), "503 server_busy");
    assert_eq!(over_http_1("2001:db8:0:1::1"), "200");
    drop(held);
}

#[test]
fn a_header_that_is_too_large_is_431() {
    let stack = ForgedStack::with_public([""; 0]);
    let fields = |count: usize, length: usize| -> String {
        (0..count)
            .map(|number| format!("X-{number}: {}\r\n", "a".repeat(length)))
            .collect()
    };
    for (name, fields) in [
        ("many fields", fields(300, 1)),
        ("a megabyte", fields(12, 100_000)),
        ("just too much", fields(1, 65_536)),
    ] {
        let request = format!("GET /orders/public/x HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let response = exchange(stack.sidecar.address(), "GET", request.as_bytes());
        assert_eq!(response.verdict(), "431 request_header_too_large", "{name}");
    }
    assert_eq!(stack.service.requests().len(), 0);
}

#[test]
fn who_breaks_off_within_a_header_is_no_error_of_ours() {
    let stack = ForgedStack::with_public([""; 0]);
    let mut client = RawClient::connect(stack.sidecar.address());
    client.send(b"GET / HTTP/1.1\r\nHos");
    client.finish();
    assert!(is_closed_without_a_word(&client.try_response("GET")));
    // A later line: an earlier one would be in the log by now.
    stack.sidecar.anonymous().get("/later");
    let log = wait::until("the later line", || {
        let log = stack.sidecar.process().stderr();
        log.contains("/orders/later").then_some(log)
    });
    assert!(!log.contains("ERROR"), "{log}");
}

/// A quarter of the measured memory while each chunk kept a part of a buffer alive.
const UNFINISHED_BODIES_KIB: u64 = 12 * 1024;

#[test]
fn bodies_that_drip_in_take_no_more_than_their_size() {
    let plan = AuthServerPlan::new().flags(["--request-timeout", "60"]);
    let server = plan.ready();
    server.login();
    let process = server.process();
    let Some(before) = process.peak_resident_kib() else {
        return tests::skip::skip(
            "the memory of unfinished bodies",
            "run on Linux, which has /proc",
        );
    };
    let body = json!({"username": "ada", "password": "x".repeat(7000)}).to_string();
    let chunks: String = body
        .chars()
        .map(|byte| format!("1\r\n{byte}\r\n"))
        .collect();
    let head = format!(
        "POST /auth{LOGIN} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    );
    let mut clients: Vec<_> = (0..40)
        .map(|_| RawClient::connect(server.address()))
        .collect();
    for client in &mut clients {
        client.send(head.as_bytes());
        client.send(chunks.as_bytes());
    }
    for client in &mut clients {
        client.send(b"0\r\n\r\n");
        assert_eq!(client.response("POST").status(), 200);
    }
    let taken = process.peak_resident_kib().unwrap_or_default() - before;
    assert!(taken < UNFINISHED_BODIES_KIB, "{taken} KiB");
}
