//! Requests that two parsers could read differently, or that no service can use, are rejected
//! (lessons A5, A9a, C24).

use tests::client::verdict;
use tests::echo_service::MARK;
use tests::raw_client::{RawClient, exchange};

use super::forwarding::stack;

/// Lines that `odd_requests.toml` cannot hold, because `sidecar explain` takes no such bytes, and one of
/// each kind that it does.
#[test]
fn lesson_c24_what_parsers_read_differently_is_rejected() {
    let stack = stack();
    let token = stack.token();
    for rest in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 0x4\r\n\r\nbody",
        "Content-Length:\r\n\r\n",
        "Content-Length : 4\r\n\r\nbody",
        "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        "Connection: close, Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "X-A: 1\nX-B: 2\r\n\r\n",
        "X-A: 1\r\n 2\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        for (path, credentials) in [
            ("list", format!("Authorization: Bearer {token}\r\n")),
            ("public/x", String::new()),
        ] {
            let request = format!("POST /orders/{path} HTTP/1.1\r\nHost: a\r\n{credentials}{rest}");
            let response = exchange(stack.sidecar.address(), "POST", request.as_bytes());
            let found = verdict(&response);
            assert!(
                found.starts_with("400 request_"),
                "{rest:?} on {path}: {found}"
            );
        }
    }
    assert_eq!(stack.service.requests().len(), 0);
}

/// Behind a gateway that ends such a line elsewhere, `/orders/public/hidden` is a second request.
#[test]
fn lesson_c24_chunks_that_gateways_count_differently() {
    let stack = stack();
    let token = stack.token();
    for chunks in [
        "2;\nxx\r\n2f\r\n0\r\n\r\n",
        "2 \nxx\r\n0\r\n\r\n",
        "1;a\0b\r\nx\r\n0\r\n\r\n",
        "1;a\rb\r\nx\r\n0\r\n\r\n",
        "1;a\x0bb\r\nx\r\n0\r\n\r\n",
        ";a\r\n\r\n",
        "\r\n\r\n",
        "0;\n\r\n\r\n",
        "1\r\nxyz0\r\n\r\n",
        "1\r\nx\n0\r\n\r\n",
        "0\r\n\n",
        "0\r\nA: \0\r\n\r\n",
        "0\r\nA: b\nC: d\r\n\r\n",
        "0x1\r\nx\r\n0\r\n\r\n",
    ] {
        for (path, credentials) in [
            ("list", format!("Authorization: Bearer {token}\r\n")),
            ("public/x", String::new()),
        ] {
            let head = format!(
                "POST /orders/{path} HTTP/1.1\r\nHost: a\r\n{credentials}Transfer-Encoding: chunked\r\n\r\n"
            );
            let next = "GET /orders/public/hidden HTTP/1.1\r\nHost: a\r\n\r\n";
            let request = format!("{head}{chunks}{next}");
            let response = exchange(stack.sidecar.address(), "POST", request.as_bytes());
            assert_eq!(
                verdict(&response),
                "400 request_framing",
                "{chunks:?} on {path}"
            );

            // The same in pieces, behind another request.
            let (begin, end) = head.split_at(30);
            let mut client = RawClient::connect(stack.sidecar.address());
            let before = "POST /orders/public/y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\n\n\r\n0\r\n\r\n";
            client.send(format!("{before}{begin}").as_bytes());
            assert_eq!(client.response("POST").status(), 200, "{chunks:?}");
            client.send(format!("{end}{chunks}{next}").as_bytes());
            let response = client.response("POST");
            assert_eq!(
                verdict(&response),
                "400 request_framing",
                "{chunks:?} on {path}"
            );
            assert!(client.is_at_end(), "{chunks:?} on {path}");
        }
    }
    let paths = stack.service.requests();
    assert!(!format!("{paths:?}").contains("hidden"), "{paths:?}");
}

/// More methods, hosts and targets are in `odd_requests.toml`; here are those without a host or with
/// another version.
#[test]
fn lesson_a5_and_c24_hosts_methods_and_targets_for_no_service() {
    let stack = stack();
    let token = stack.token();
    for (head, expected) in [
        ("GET /orders/list HTTP/1.1\r\n", "400 host_missing"),
        ("GET http://a/orders/list HTTP/1.0\r\n", "400 host_missing"),
        ("GET /orders/list HTTP/1.0\r\nHost:\r\n", "400 host_missing"),
        (
            "GET orders/list HTTP/1.1\r\nHost: a\r\n",
            "400 path_not_canonical",
        ),
        (
            "TRACE /orders/public/x HTTP/1.1\r\nHost: a\r\n",
            "405 method_not_allowed",
        ),
        // A close without a response is a rejection as well.
        ("GET /orders/list HTTP/2.0\r\nHost: a\r\n", ""),
    ] {
        let request = format!("{head}Authorization: Bearer {token}\r\n\r\n");
        let mut client = RawClient::connect(stack.sidecar.address());
        client.send(request.as_bytes());
        client.finish();
        match client.try_response("GET") {
            Ok(response) => assert!(
                verdict(&response).starts_with(expected) && response.status() >= 400,
                "{head}: {}",
                verdict(&response)
            ),
            Err(_) => assert_eq!(expected, "", "{head}"),
        }
    }
    assert_eq!(stack.service.requests().len(), 0);
}

#[test]
fn an_upgrade_needs_a_verified_websocket_handshake() {
    let stack = stack();
    let switching = format!(
        "HTTP/1.1 101 Switching Protocols\r\n{MARK}: 1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello"
    );
    stack.service.responds(switching.into_bytes());
    let handshake = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let open = |path: &str, credentials: &str| {
        let mut client = RawClient::connect(stack.sidecar.address());
        client
            .send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{credentials}{handshake}").as_bytes());
        client.response("GET")
    };
    assert_eq!(verdict(&open("/orders/ws", "")), "401 token_missing");
    assert_eq!(
        verdict(&open("/orders/public/ws", "")),
        "400 upgrade_not_allowed"
    );
    assert_eq!(stack.service.requests().len(), 0);
    assert_eq!(
        open(
            "/orders/ws",
            &format!("Authorization: Bearer {}\r\n", stack.token())
        )
        .status(),
        101
    );
}
