//! TLS on the auth server: accepted and rejected clients, and certificates that change at run time.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use rustls::version::{TLS12, TLS13};
use tests::actors::auth_server::{
    AuthServer, AuthServerPlan, ECDSA, LOGIN, USER_DETAILS, admin_get, credentials,
};
use tests::actors::client::Request;
use tests::actors::expect::has;
use tests::actors::sidecar::SidecarPlan;
use tests::services::tls_service::TlsService;
use tests::wait;
use tests::wire::certificates::{Authority, Certificate, END};
use tests::wire::clock::now;
use tests::wire::moved_clock::MovedClock;

fn login() -> Vec<u8> {
    let request = Request::new("POST", format!("/auth{LOGIN}")).json(&credentials());
    request.bytes("localhost")
}

/// Serves TLS with a certificate of `authority`.
fn server(authority: &Authority, certificate: &Certificate) -> AuthServer {
    let plan = AuthServerPlan::new().tls(authority, certificate);
    plan.ready()
}

#[test]
fn tls_1_2_and_1_3_speak_http_1_1_alone() {
    let authority = Authority::new();
    let server = server(&authority, &authority.issue("auth"));
    for (version, offered, agreed) in [
        (&TLS12, &["http/1.1"][..], Some("http/1.1")),
        (&TLS13, &["h2", "http/1.1"], Some("http/1.1")),
        (&TLS13, &[], None),
    ] {
        let trust = authority.client_with(&[version], offered);
        let mut client = trust.connect(server.address()).unwrap();
        assert_eq!(client.protocol().as_deref(), agreed);
        client.send(&login());
        assert_eq!(client.response("POST").status(), 200);
    }
    let only_h2 = authority.client_with(&[&TLS13], &["h2"]);
    assert!(only_h2.connect(server.address()).is_err());
}

#[test]
fn plain_http_on_the_tls_port_gets_a_400_and_nothing_else() {
    let authority = Authority::new();
    let server = server(&authority, &authority.issue("auth"));
    let mut plain = TcpStream::connect(server.address()).unwrap();
    plain.write_all(&login()).unwrap();
    let mut response = String::new();
    plain.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    assert!(
        response.ends_with(r#"{"reason":"request_malformed"}}"#),
        "{response}"
    );
    assert_eq!(server.logged_in().status(USER_DETAILS), 200);
}

#[test]
fn rejections_reach_the_client_over_tls_and_announce_the_end() {
    let authority = Authority::new();
    let server = server(&authority, &authority.issue("auth"));
    let mut client = authority.client().connect(server.address()).unwrap();
    let mut upload = b"POST /auth/oauth/jwt/token HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 4194304\r\n\r\n".to_vec();
    upload.resize(upload.len() + 4_194_304, b'x');
    client.send(&upload);
    assert_eq!(client.response("POST").status(), 413);

    let mut client = authority.client().connect(server.address()).unwrap();
    client.send(b"GET /auth HTTP/1.1\r\nA B: c\r\n\r\n");
    let response = client.response("GET");
    assert_eq!(response.json()["data"]["reason"], "request_malformed");
    assert_eq!(client.rest().unwrap(), b"", "no truncation");
}

#[test]
fn a_new_certificate_is_served_and_a_bad_one_is_named() {
    let authority = Authority::new();
    let certificate = authority.issue("auth");
    let server = server(&authority, &certificate);
    let trust = authority.client();
    let presented = || trust.connect(server.address()).unwrap().presented();
    let counted = |outcome: &str, successful: u64| {
        let name = "postern_auth_server_tls_certificate_reloads_total";
        let counted = server.metric(&format!("{name}{{outcome=\"{outcome}\"}}")) >= Some(1);
        let last = server.metric("postern_auth_server_tls_last_reload_successful");
        counted && last == Some(successful)
    };
    let first = presented();
    authority.issue("auth");
    wait::until("the new certificate", || presented() != first);
    wait::until("its count", || counted("replaced", 1));
    let second = presented();
    let other = authority.issue("other");
    fs::copy(&other.cert, &certificate.cert).unwrap();
    wait::until("the rejection", || counted("rejected", 0));
    server.until_logged("does not belong to the first certificate");
    let mut open = trust.connect(server.address()).unwrap();
    assert_eq!(open.presented(), second);
    assert_eq!(server.readiness(), 200);
    // The key follows: now they match.
    fs::copy(&other.key, &certificate.key).unwrap();
    wait::until("the other certificate", || presented() != second);
    open.send(&login());
    assert_eq!(open.response("POST").status(), 200);
}

#[test]
fn a_certificate_that_expires_in_use_is_noted_and_logged_once() {
    const DAY: i64 = 86_400;
    let (authority, Some(clock)) = (Authority::new(), MovedClock::new()) else {
        return;
    };
    let (certificate, ca) = (authority.issue("auth"), authority.file());
    let service = TlsService::start(&certificate, None);
    let server = AuthServerPlan::polling().environments(&clock.environment());
    let server = server.tls(&authority, &certificate).ready();
    let sidecar = SidecarPlan::to(&service.url("localhost"), &server.url());
    let ca = ca.to_str().unwrap();
    let sidecar = sidecar.environments(&clock.environment()).flags(ECDSA);
    let sidecar = sidecar
        .flags(["--upstream-ca", ca, "--auth-ca", ca])
        .ready();
    let tls_cert = format!("--tls-cert {}", certificate.paths().0);
    let programs = [
        (server.admin(), server.process(), tls_cert),
        (
            sidecar.admin(),
            sidecar.process(),
            format!("--auth-ca {ca}"),
        ),
        (
            sidecar.admin(),
            sidecar.process(),
            format!("--upstream-ca {ca}"),
        ),
    ];
    for (left, found) in [
        (8 * DAY, None),
        (
            7 * DAY - 60,
            Some(": the certificate expires in 6 d 23 h, at 4096-01-01T00:00:00Z"),
        ),
        (
            -60,
            Some(": the certificate has expired at 4096-01-01T00:00:00Z"),
        ),
    ] {
        clock.set(END - left - now());
        for (admin, process, named) in &programs {
            let page = || admin_get(*admin, "/").text();
            let Some(found) = found else {
                assert!(!page().contains("\nfiles "), "{}", page());
                continue;
            };
            let found = format!("{named}{found}");
            wait::until(&found, || page().contains(&found));
            let readiness = admin_get(*admin, "/readyz");
            has(readiness.text(), &found);
            assert_eq!(process.until_logged(&found), 1, "{}", process.stderr());
        }
    }
}

#[test]
fn a_new_certificate_that_ends_soon_is_a_warning() {
    const SAID: &str = "the certificate expires in ";
    let (authority, Some(clock)) = (Authority::new(), MovedClock::new()) else {
        return;
    };
    clock.set(END - 86_400 - now());
    let server = AuthServerPlan::polling().environments(&clock.environment());
    let server = server.tls(&authority, &authority.issue("auth")).ready();
    let warnings = || server.process().stderr().matches(SAID).count();
    assert_eq!(warnings(), 1);
    authority.issue("auth");
    wait::until("the second one", || warnings() == 2);
}

#[test]
fn the_end_is_graceful_over_tls() {
    let authority = Authority::new();
    let plan = AuthServerPlan::new().flags(["--lame-duck", "0"]);
    let server = plan.tls(&authority, &authority.issue("auth")).ready();
    let mut idle = authority.client().connect(server.address()).unwrap();
    idle.send(&login());
    assert_eq!(idle.response("POST").status(), 200);
    let _half = TcpStream::connect(server.address()).unwrap();
    server.process().terminate();
    assert_eq!(idle.rest().unwrap(), b"");
    assert_eq!(server.into_process().finished().code, Some(0));
}
