//! Requests that two parsers could read differently, or that no service can use, are rejected
//! (lessons A5, A9a, C24).

use tests::wire::raw_client::{RawClient, exchange};

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
            let found = response.verdict();
            assert!(
                found.starts_with("400 request_"),
                "{rest:?} on {path}: {found}"
            );
        }
    }
    assert_eq!(stack.service.requests().len(), 0);
}

/// Behind a gateway that ends such a line elsewhere, `/orders/public/hidden` is a second request. The other
/// bytes are those of `crates/http`.
#[test]
fn lesson_c24_chunks_that_gateways_count_differently() {
    let stack = stack();
    let token = stack.token();
    for chunks in [
        "2;\nxx\r\n2f\r\n0\r\n\r\n",
        "1\r\nxyz0\r\n\r\n",
        "0\r\nA: b\nC: d\r\n\r\n",
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
            let found = response.verdict();
            assert_eq!(found, "400 request_framing", "{chunks:?} on {path}");

            // The same in pieces, behind another request.
            let (begin, end) = head.split_at(30);
            let mut client = RawClient::connect(stack.sidecar.address());
            let before = "POST /orders/public/y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\n\n\r\n0\r\n\r\n";
            client.send(format!("{before}{begin}").as_bytes());
            assert_eq!(client.response("POST").status(), 200, "{chunks:?}");
            client.send(format!("{end}{chunks}{next}").as_bytes());
            let response = client.response("POST");
            let expected = "400 request_framing";
            assert_eq!(response.verdict(), expected, "{chunks:?} on {path}");
            assert!(client.is_at_end(), "{chunks:?} on {path}");
        }
    }
    let paths = stack.service.requests();
    assert!(!format!("{paths:?}").contains("hidden"), "{paths:?}");
}
