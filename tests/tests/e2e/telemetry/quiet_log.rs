//! No client fills the log by sending bytes: the libraries' lines about them are written at no
//! level.

use std::net::SocketAddr;

use rustls::version::TLS13;
use tests::actors::auth_server::AuthServerPlan;
use tests::actors::stack::ForgedStack;
use tests::wait;
use tests::wire::certificates::Authority;
use tests::wire::h2_frames::{Fate, FrameClient, get_fields};
use tests::wire::metrics::rejections;
use tests::wire::raw_client::RawClient;

const QUIET: [&str; 4] = ["--access-log", "off", "--log-level", "debug"];
const LIBRARIES: [&str; 4] = [" h2::", " hyper", " pingora", " rustls::"];
/// A TLS alert, and a message that no handshake begins with.
const TLS_RECORDS: [&[u8]; 2] = [&[21, 3, 3, 0, 2, 1, 40], &[22, 3, 3, 0, 4, 16, 0, 0, 0]];

fn expect_no_line_of_a_library(log: &str) {
    let theirs = |line: &&str| LIBRARIES.iter().any(|library| line.contains(library));
    let lines: Vec<_> = log.lines().filter(theirs).collect();
    assert!(lines.is_empty(), "{lines:#?}");
}

/// Sends bytes and waits until the other side has closed.
fn send_in_vain(address: SocketAddr, bytes: &[u8]) {
    let mut client = RawClient::connect(address);
    client.send(bytes);
    client.finish();
    assert!(client.is_at_end());
}

#[test]
fn what_an_attacker_sends_over_http_2_is_no_line_of_a_library() {
    let stack = ForgedStack::with_flags(QUIET);
    let address = stack.sidecar.address();
    let usual = get_fields("/orders/list");
    let mut client = FrameClient::connect(address);
    for _ in 0..100 {
        // The acknowledgement of a PING that was never sent.
        client.frame(6, 1, 0, &[0; 8]);
    }
    client.head(1, &usual, true);
    assert!(matches!(client.fate(1), Fate::Response(_)));

    let mut client = FrameClient::connect(address);
    for stream in (1..100).step_by(2) {
        client.head(stream, &[&usual[..], &[("host", "b")]].concat(), true);
    }
    assert!(matches!(client.fate(99), Fate::Response(_)));
    for garbage in [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], b"\0", b"G\nH\n\n"] {
        send_in_vain(address, garbage);
    }
    let length = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n";
    send_in_vain(address, length.as_bytes());
    expect_no_line_of_a_library(&stack.sidecar.process().stderr());
}

#[test]
fn what_an_attacker_sends_over_tls_is_no_line_of_a_library() {
    let authority = Authority::new();
    let certificate = authority.issue("server");
    let tls = certificate.flags();
    let stack = ForgedStack::with(|plan| plan.flags(QUIET).flags(&tls));
    let plan = AuthServerPlan::new().flags(QUIET);
    let auth_server = plan.tls(&authority, &certificate).start();
    for address in [stack.sidecar.address(), auth_server.address()] {
        for record in TLS_RECORDS {
            send_in_vain(address, record);
        }
        let trust = authority.client_with(&[&TLS13], &["h2"]);
        if let Ok(mut client) = trust.connect(address) {
            client.send(b"no preface of HTTP/2");
            let _ = client.rest();
        }
    }
    wait::until("the rejection to be counted", || {
        rejections(stack.sidecar.admin(), "request_malformed") == 1
    });
    expect_no_line_of_a_library(&stack.sidecar.process().stderr());
    expect_no_line_of_a_library(&auth_server.process().stderr());
}
