//! TLS towards clients.

use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use rustls::version::{TLS12, TLS13};
use tests::actors::auth_server::AuthServer;
use tests::actors::sidecar::Sidecar;
use tests::actors::stack::ForgedStack;
use tests::wait;
use tests::wire::certificates::{Authority, Certificate};
use tests::wire::message::Message;
use tests::wire::metrics::rejections;
use tests::wire::raw_client::RawClient;
use tests::wire::tls::Trust;

use crate::e2e::requests::forwarding::stack;

fn with_tls(stack: &ForgedStack, certificate: &Certificate, flags: &[&str]) -> Sidecar {
    let tls = certificate.flags();
    let tls = tls.iter().map(String::as_str);
    let flags: Vec<_> = tls.chain(flags.iter().copied()).collect();
    stack.in_front_of(&stack.service.url(), &flags)
}

fn get(trust: &Trust, address: SocketAddr, authorization: &str) -> Message {
    let mut client = trust.connect(address).expect("a handshake");
    client.send(format!("GET /orders/list HTTP/1.1\r\nHost: a\r\n{authorization}\r\n").as_bytes());
    client.response("GET")
}

fn authorization(stack: &ForgedStack) -> String {
    format!("Authorization: Bearer {}\r\n", stack.token())
}

#[test]
fn clients_reach_the_service_over_tls_and_choose_their_http() {
    let stack = stack();
    let authority = Authority::new();
    let sidecar = with_tls(&stack, &authority.issue("server"), &[]);
    let address = sidecar.address();
    for versions in [&[&TLS12][..], &[&TLS13]] {
        let trust = authority.client_with(versions, &["http/1.1"]);
        assert_eq!(get(&trust, address, &authorization(&stack)).status(), 200);
        assert_eq!(get(&trust, address, "").status(), 401);
    }
    for (offered, agreed) in [
        (&["h2", "http/1.1"][..], Some("h2")),
        (&["http/1.1", "h2"], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&[], None),
    ] {
        let trust = authority.client_with(&[&TLS13], offered);
        let client = trust.connect(address).expect("a handshake");
        assert_eq!(client.protocol().as_deref(), agreed, "{offered:?}");
    }
    let unknown = authority.client_with(&[&TLS13], &["spdy/3"]);
    assert!(unknown.connect(address).is_err());
    assert!(Authority::new().client().connect(address).is_err());
}

#[test]
fn a_client_and_a_port_that_differ_about_tls_are_logged() {
    let stack = stack();
    let authority = Authority::new();
    let sidecar = with_tls(&stack, &authority.issue("server"), &[]);
    for hello in [
        "GET /orders/list HTTP/1.1\r\nHost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut plain = RawClient::connect(sidecar.address());
        plain.send(hello.as_bytes());
        assert_eq!(plain.response("GET").status(), 400, "{hello}");
    }
    assert_eq!(stack.service.requests().len(), 0);
    sidecar.until_logged("plain HTTP came, and this port has --tls-cert");
    assert!(authority.client().connect(stack.sidecar.address()).is_err());
    let expected = "a TLS handshake came, and this port has no --tls-cert";
    stack.sidecar.until_logged(expected);
    let trust = authority.client();
    let auth_server = AuthServer::start();
    assert!(trust.connect(auth_server.address()).is_err());
    auth_server.until_logged(expected);
    let sidecar = with_tls(&stack, &authority.issue("server"), &[]);
    assert!(
        Authority::new()
            .client()
            .connect(sidecar.address())
            .is_err()
    );
    sidecar.until_logged("no connection with TLS");
}

#[test]
fn who_agrees_on_http_2_and_does_not_speak_it_is_closed() {
    let stack = stack();
    let authority = Authority::new();
    let flags = ["--request-header-timeout", "1"];
    let sidecar = with_tls(&stack, &authority.issue("server"), &flags);
    let trust = authority.client_with(&[&TLS13], &["h2"]);
    for begun in ["", "PRI * HTTP", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut client = trust.connect(sidecar.address()).expect("a handshake");
        client.send(begun.as_bytes());
        let closed = match client.rest() {
            Ok(response) => !response.starts_with(b"HTTP"),
            Err(error) => [UnexpectedEof, ConnectionReset].contains(&error.kind()),
        };
        assert!(closed, "{begun}");
    }
    for reason in ["request_timeout", "request_malformed"] {
        wait::until(reason, || rejections(sidecar.admin(), reason) == 1);
    }
}

#[test]
fn a_new_certificate_is_served_and_a_bad_one_is_not() {
    let stack = stack();
    let authority = Authority::new();
    let certificate = authority.issue("server");
    let sidecar = with_tls(&stack, &certificate, &[]);
    let trust = authority.client_with(&[&TLS13], &["http/1.1"]);
    let presented = || {
        trust
            .connect(sidecar.address())
            .expect("a handshake")
            .presented()
    };
    let mut open = trust.connect(sidecar.address()).expect("a handshake");
    let first = presented();
    authority.issue("server");
    sidecar.process().signal("HUP");
    wait::until("the new certificate", || presented() != first);
    let second = presented();
    // Another key beside the certificate: they do not match.
    std::fs::copy(authority.issue("other").key, &certificate.key).unwrap();
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&certificate.key, mode).unwrap();
    sidecar.until_logged("TLS files: unusable");
    assert_eq!(presented(), second);
    let request = format!(
        "GET /orders/list HTTP/1.1\r\nHost: a\r\n{}\r\n",
        authorization(&stack)
    );
    open.send(request.as_bytes());
    assert_eq!(open.response("GET").status(), 200);
}
