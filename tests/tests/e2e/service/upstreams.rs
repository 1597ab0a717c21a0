//! The transports to a service, and its restarts.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use tests::actors::setting;
use tests::actors::sidecar::SidecarPlan;
use tests::actors::stack::ForgedStack;
use tests::services::echo_service::MARK;
use tests::services::h2_service::H2Service;
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::services::tls_service::TlsService;
use tests::wait;
use tests::wire::certificates::Authority;
use tests::wire::free_address::free_address;

use crate::e2e::requests::forwarding::stack;

/// A handshake needs both sides, of which a busy machine may stall one.
pub(crate) const LONG_CONNECT: &str = "--upstream-connect-timeout=30";

fn ok() -> Vec<u8> {
    response("200 OK", &[&format!("{MARK}: 1")], b"echo")
}

#[test]
fn an_h2c_service_gets_an_http_1_client_s_request() {
    let stack = stack();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.sock");
    let (port, socket) = (H2Service::start(), H2Service::start_on_socket(&path));
    let socket_url = format!("h2c+unix:{}", path.display());
    for (service, url) in [(&port, port.url()), (&socket, socket_url)] {
        let sidecar = stack.in_front_of(&url, &[]);
        let client = sidecar.bearing(&stack.token());
        let request = client
            .request("POST", "/a%20b?c=%2F")
            .line("Connection: keep-alive, X-Hop")
            .line("X-Hop: 1")
            .line("X_Current_User: forged")
            .line("TE: trailers")
            .body("hello");
        for _ in 0..3 {
            assert_eq!(client.send(&request).body, b"hello", "{url}");
        }
        assert_eq!(service.connections(), 1);
        let seen = service.requests().pop().unwrap();
        assert_eq!(seen.body, Some(5));
        assert_eq!(seen.head.uri().path(), "/orders/a%20b");
        assert_eq!(seen.head.uri().query(), Some("c=%2F"));
        let authority = seen.head.uri().authority().unwrap().to_string();
        assert_eq!(authority, sidecar.address().to_string());
        let fields = seen.head.headers();
        for absent in "connection x-hop x_current_user host keep-alive".split(' ') {
            assert!(!fields.contains_key(absent), "{absent}: {fields:?}");
        }
        assert_eq!(fields.get_all("x-current-user").iter().count(), 1);
    }
}

#[test]
fn an_https_service_of_http_1_gets_long_bodies() {
    let stack = stack();
    let authority = Authority::new();
    let service = TlsService::start(&authority.issue("server"), None);
    let plan = SidecarPlan::to(&service.url("localhost"), &stack.auth_server.url())
        .flags([
            "--signing-type=ecdsa",
            "--upstream-reuse-after-body",
            LONG_CONNECT,
        ])
        .flags(["--upstream-ca", &authority.file().display().to_string()]);
    let sidecar = plan.ready();
    let client = sidecar.bearing(&stack.token());
    let long = client
        .request("POST", "/list")
        .body(vec![b'x'; 1024 * 1024]);
    for _ in 0..4 {
        assert_eq!(client.send(&long).body, b"over TLS");
    }
    assert_eq!(service.requests().len(), 4);
}

#[test]
fn an_https_service_is_verified_by_its_authority_and_its_name() {
    let stack = stack();
    let authority = Authority::new();
    let service = TlsService::start(&authority.issue("server"), None);
    let ca = authority.file().display().to_string();
    let untrusted = Authority::new().file();
    let untrusted = untrusted.display().to_string();
    let trusted = ["--upstream-ca", &*ca];
    let named = ["--upstream-server-name", "localhost", "--upstream-ca", &ca];
    let misnamed = ["--upstream-server-name", "other.test", "--upstream-ca", &ca];
    let rejected = "502 upstream_unavailable";
    for (host, flags, expected) in [
        ("localhost", &trusted[..], "200"),
        ("127.0.0.1", &trusted, "200"),
        ("127.0.0.1", &named, "200"),
        ("localhost", &misnamed, rejected),
        // Nothing stands between the two on one machine.
        ("localhost", &[], "200"),
        ("127.0.0.1", &[], "200"),
        ("127.0.0.1", &named[..2], rejected),
    ] {
        let flags = [&[LONG_CONNECT], flags].concat();
        let sidecar = stack.in_front_of(&service.url(host), &flags);
        let response = sidecar.bearing(&stack.token()).get("/list");
        assert_eq!(response.verdict(), expected, "{host} {flags:?}");
    }
    // The temporary directory of the other authority no longer exists.
    let plan = SidecarPlan::to(&service.url("localhost"), &stack.auth_server.url()).flags([
        "--signing-type=ecdsa",
        "--upstream-ca",
        &untrusted,
    ]);
    assert_eq!(plan.fails().code, Some(78));
    assert_eq!(service.requests().len(), 5);
}

#[test]
fn an_https_service_may_require_a_certificate_of_the_sidecar() {
    let stack = stack();
    let authority = Authority::new();
    let ca = authority.file();
    let service = TlsService::start(&authority.issue("server"), Some(&ca));
    let ours = authority.issue("sidecar");
    let text = |path: PathBuf| path.display().to_string();
    let (ca, cert, key) = (text(ca), text(ours.cert), text(ours.key));
    let with = [
        LONG_CONNECT,
        "--upstream-ca",
        &ca,
        "--upstream-client-cert",
        &cert,
        "--upstream-client-key",
        &key,
    ];
    let url = service.url("localhost");
    let known = stack.in_front_of(&url, &with);
    let client = known.bearing(&stack.token());
    for _ in 0..2 {
        assert_eq!(client.get("/list").body, b"over TLS");
    }
    let unknown = stack.in_front_of(&url, &with[..3]);
    let found = unknown.bearing(&stack.token()).verdict("/list");
    assert_eq!(found, "502 upstream_unavailable");
}

/// Ends the loops of other threads, on a panic too: otherwise their scope waits forever.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn restarts_of_the_service_cost_no_unseen_request() {
    let address = free_address();
    let stack = ForgedStack::before(&format!("http://{address}"), &[]);
    let token = stack.token();
    let over = AtomicBool::new(false);
    let restarts = setting::number("POSTERN_TEST_RESTARTS", 10);
    let (mut responses, mut lost) = (0, Vec::new());
    std::thread::scope(|scope| {
        let clients_end = SetOnDrop(&over);
        let clients: Vec<_> = ["GET", "HEAD", "POST", "GET"]
            .into_iter()
            .map(|method| {
                let client = stack.sidecar.bearing(&token);
                let over = &over;
                scope.spawn(move || {
                    let mut verdicts = Vec::new();
                    while !over.load(Ordering::SeqCst) {
                        let response = client.send(&client.request(method, "/list"));
                        verdicts.push((method, response.verdict()));
                    }
                    verdicts
                })
            })
            .collect();
        let mut received = 0;
        for _ in 0..restarts {
            let service = SocketServer::start_on(address, |_| Reply::Bytes(ok()));
            // More than arrive within the pause of a retry: a request is sent again once, so that one
            // which meets two ends is lost.
            wait::until("some requests", || service.requests().len() > 200);
            received += service.requests().len();
            drop(service);
            wait::until("the service to be gone", || {
                TcpStream::connect(address).is_err()
            });
        }
        assert!(received > 200 * restarts);
        let last = SocketServer::start_on(address, |_| Reply::Bytes(ok()));
        wait::until("the last service to be found", || {
            last.requests().len() > 20
        });
        drop(clients_end);
        for client in clients {
            for (method, verdict) in client.join().unwrap() {
                if verdict == "200" {
                    responses += 1;
                } else {
                    lost.push((method, verdict));
                }
            }
        }
    });
    assert!(responses > 200 * restarts, "{responses}");
    // The service may have processed a POST that it received before its end.
    let unexplained: Vec<_> = lost
        .iter()
        .filter(|(method, verdict)| *method != "POST" || verdict != "502 upstream_unavailable")
        .collect();
    assert!(unexplained.is_empty(), "{unexplained:?}");
    assert!(lost.len() <= restarts + 1, "{lost:?}");
}
