//! Requests that two parsers could read differently, or that no service can use, are rejected
//! (lessons A5, A9a, C24).

use tests::client::{Request, verdict};
use tests::echo_service::MARK;
use tests::message::Message;
use tests::raw_client::{RawClient, exchange};

use super::forwarding::stack;

#[test]
fn lesson_c24_what_parsers_read_differently_is_rejected() {
    let stack = stack();
    let token = stack.token();
    let rows: [(&str, &str, &str); 19] = [
        (
            "both lengths",
            "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "400 request_framing",
        ),
        (
            "a repeated length",
            "Content-Length: 4\r\nContent-Length: 4\r\n\r\nbody",
            "400 request_framing",
        ),
        (
            "a length as a list",
            "Content-Length: 4, 4\r\n\r\nbody",
            "400 request_framing",
        ),
        (
            "two lengths",
            "Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
            "400 request_",
        ),
        (
            "a signed length",
            "Content-Length: +4\r\n\r\nbody",
            "400 request_",
        ),
        (
            "a length in hex",
            "Content-Length: 0x4\r\n\r\nbody",
            "400 request_",
        ),
        (
            "a length without digits",
            "Content-Length:\r\n\r\n",
            "400 request_",
        ),
        (
            "a look-alike of the length",
            "Content_Length: 4\r\n\r\n",
            "400 request_framing",
        ),
        (
            "a look-alike of the coding",
            "Transfer_Encoding: chunked\r\n\r\n",
            "400 request_framing",
        ),
        (
            "another coding",
            "Transfer-Encoding: gzip\r\n\r\n",
            "400 request_",
        ),
        (
            "chunked twice",
            "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
            "400 request_",
        ),
        (
            "chunked with a tail",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
            "400 request_",
        ),
        (
            "an odd spelling of chunked",
            "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
            "400 request_",
        ),
        (
            "a nominated length",
            "Connection: content-length\r\nContent-Length: 4\r\n\r\nbody",
            "400 request_framing",
        ),
        (
            "a nominated coding",
            "Connection: close, Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "400 request_framing",
        ),
        (
            "a bare line feed",
            "X-A: 1\nX-B: 2\r\n\r\n",
            "400 request_framing",
        ),
        ("a folded line", "X-A: 1\r\n 2\r\n\r\n", "400 request_"),
        (
            "a blank before the colon",
            "Content-Length : 4\r\n\r\nbody",
            "400 request_",
        ),
        ("a line without a colon", "nonsense\r\n\r\n", "400 request_"),
    ];
    for (name, rest, expected) in rows {
        for (path, credentials) in [
            ("list", format!("Authorization: Bearer {token}\r\n")),
            ("public/x", String::new()),
        ] {
            let request = format!("POST /orders/{path} HTTP/1.1\r\nHost: a\r\n{credentials}{rest}");
            let response = exchange(stack.sidecar.address(), "POST", request.as_bytes());
            assert!(
                verdict(&response).starts_with(expected),
                "{name} on {path}: {}",
                verdict(&response)
            );
        }
    }
    assert_eq!(stack.service.requests().len(), 0);
}

#[test]
fn chunks_with_more_framing_than_data_are_rejected() {
    let stack = stack();
    for chunks in [
        format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(5_000)),
        format!("1{}\r\nx\r\n0\r\n\r\n", " ".repeat(5_000)),
        format!("0\r\n{}\r\n", "A: b\r\n".repeat(20_000)),
    ] {
        let request = format!(
            "POST /orders/public/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
        );
        let response = exchange(stack.sidecar.address(), "POST", request.as_bytes());
        assert_eq!(verdict(&response), "400 request_framing", "{:.20}", chunks);
    }
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

#[test]
fn lesson_a5_and_c24_hosts_methods_and_targets_for_no_service() {
    let stack = stack();
    let token = stack.token();
    for (first, host, expected) in [
        (
            "TRACE /orders/list HTTP/1.1",
            "Host: a\r\n",
            "405 method_not_allowed",
        ),
        (
            "TRACE /orders/public/x HTTP/1.1",
            "Host: a\r\n",
            "405 method_not_allowed",
        ),
        (
            "CONNECT /orders/list HTTP/1.1",
            "Host: a\r\n",
            "405 method_not_allowed",
        ),
        (
            "CONNECT service:443 HTTP/1.1",
            "Host: a\r\n",
            "405 method_not_allowed",
        ),
        (
            "OPTIONS * HTTP/1.1",
            "Host: a\r\n",
            "400 path_not_canonical",
        ),
        ("GET /orders/list HTTP/1.1", "", "400 host_missing"),
        (
            "GET /orders/list HTTP/1.1",
            "Host: a\r\nHost: b\r\n",
            "400 request_malformed",
        ),
        ("GET http://a/orders/list HTTP/1.0", "", "400 host_missing"),
        ("GET /orders/list HTTP/1.0", "Host:\r\n", "400 host_missing"),
        ("GET /orders/list HTTP/1.1", "Host:\r\n", "400 host_missing"),
        (
            "GET /orders/list HTTP/1.1",
            "Host: a/../b c\r\n",
            "400 request_malformed",
        ),
        (
            "GET orders/list HTTP/1.1",
            "Host: a\r\n",
            "400 path_not_canonical",
        ),
        (
            "GET /orders/public/x HTTP/1.1 HTTP/1.1",
            "Host: a\r\n",
            "400 request_malformed",
        ),
        (
            "GET /orders/list HTTP/1.1",
            "Host: a:x\r\n",
            "400 request_malformed",
        ),
        (
            "GET /orders/list HTTP/1.1",
            "Host: :80\r\n",
            "400 request_malformed",
        ),
        (
            "GET /orders/list HTTP/1.1",
            "Host: [::1\r\n",
            "400 request_malformed",
        ),
        ("GET /orders/list HTTP/2.0", "Host: a\r\n", ""),
    ] {
        let request = format!("{first}\r\n{host}Authorization: Bearer {token}\r\n\r\n");
        let mut client = RawClient::connect(stack.sidecar.address());
        client.send(request.as_bytes());
        client.finish();
        match client.try_response("GET") {
            Ok(response) => assert!(
                verdict(&response).starts_with(expected) && response.status() >= 400,
                "{first} {host}: {}",
                verdict(&response)
            ),
            // A close without a response is a rejection as well.
            Err(_) => assert_eq!(expected, "", "{first} {host}"),
        }
    }
    assert_eq!(stack.service.requests().len(), 0);
}

#[test]
fn lesson_c24_an_absolute_target_becomes_origin_form() {
    let stack = stack();
    let get = |target: &str, token: Option<&str>| -> Message {
        let request = Request::new("GET", target);
        let request = token.map_or(request.clone(), |token| {
            request.line(format!("Authorization: Bearer {token}"))
        });
        exchange(
            stack.sidecar.address(),
            "GET",
            &request.bytes("service.example"),
        )
    };
    let token = stack.token();
    assert_eq!(
        get("http://service.example/orders/list?x=1", Some(&token)).status(),
        200
    );
    assert_eq!(stack.service.last_request().target(), b"/orders/list?x=1");
    assert_eq!(
        verdict(&get("http://service.example/orders/list", None)),
        "401 token_missing"
    );
    assert_eq!(
        get("http://service.example/orders/public/x", None).status(),
        200
    );
    assert_eq!(stack.service.last_request().target(), b"/orders/public/x");
    assert_eq!(
        verdict(&get(
            "http://service.example/orders/public/../list",
            Some(&token)
        )),
        "400 path_not_canonical"
    );
    // Its host counts, and the service gets no other.
    let response = get("http://Other.example:80/orders/list", Some(&token));
    assert_eq!(response.status(), 200);
    let request = stack.service.last_request();
    assert_eq!(request.header("host"), ["other.example"]);
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
