//! The service's probes on the admin port: they compete with no client, and reach nothing else of
//! the service.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tests::actors::expect::has;
use tests::actors::sidecar::SidecarPlan;
use tests::actors::stack::ForgedStack;
use tests::services::echo_service::{EchoService, MARK};
use tests::services::h2_service::H2Service;
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::services::tls_service::TlsService;
use tests::skip::skip;
use tests::wait;
use tests::wire::certificates::Authority;
use tests::wire::message::Message;
use tests::wire::raw_client::{RawClient, exchange};

/// The `timeoutSeconds` of the probe: before any client of the test would be given up.
const KUBELET_WAITS: Duration = Duration::from_secs(5);
const BRIEF: &str = r#"{"live": {"httpGet": {"path": "/orders/healthz"}, "timeoutSeconds": 5}}"#;
const LIVE: &str = r#"{"live": {"httpGet": {"path": "/orders/healthz"}, "timeoutSeconds": 30}}"#;

/// Returns the status that the kubelet gets in its time.
fn kubelet(address: SocketAddr, path: &str) -> Option<u16> {
    let mut client = RawClient::connect(address);
    client.handle().set_read_timeout(Some(KUBELET_WAITS)).ok()?;
    client.send(format!("GET {path} HTTP/1.1\r\nHost: pod\r\n\r\n").as_bytes());
    Some(client.try_response("GET").ok()?.status())
}

fn get(address: SocketAddr, path: &str) -> Message {
    let request = format!("GET {path} HTTP/1.1\r\nHost: pod\r\n\r\n");
    exchange(address, "GET", request.as_bytes())
}

fn without_a_key(upstream: &str, probes: &str) -> SidecarPlan {
    SidecarPlan::to(upstream, "http://127.0.0.1:1/auth").flags(["--probes", probes])
}

#[test]
fn no_client_keeps_the_kubelet_from_the_service() {
    let service = SocketServer::start(|request| match request.target().as_slice() {
        b"/orders/slow" => Reply::Silence,
        _ => Reply::Bytes(response("200 OK", &[], b"")),
    });
    let stack = ForgedStack::start();
    let upstream = format!("http://{}", service.address());
    let limits = [
        "--public-path=/healthz",
        "--max-connections=8",
        "--max-requests=4",
    ];
    let flags = [&["--probes", BRIEF][..], &limits].concat();
    let get = |path: &str| stack.head("GET", path, "");
    let body = b"POST /orders/healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\nx";
    let open = b"GET /orders/healthz HTTP/1.1\r\nHost: a\r\n\r\n";
    for (load, count, request, reads) in [
        ("idle connections without a token", 30, open.to_vec(), true),
        ("good clients with a token", 12, get("/orders/list"), true),
        ("slow responses with a token", 7, get("/orders/slow"), false),
        ("slow bodies without a token", 7, body.to_vec(), false),
    ] {
        let sidecar = stack.in_front_of(&upstream, &flags);
        let clients = (0..count).map(|_| {
            let mut client = RawClient::connect(sidecar.address());
            client.send(&request);
            let _ = reads.then(|| client.try_response("GET"));
            client
        });
        let clients: Vec<_> = clients.collect();
        for _ in 0..5 {
            let status = kubelet(sidecar.admin(), "/probe/live");
            assert_eq!(status, Some(200), "{load}");
        }
        drop(clients);
    }
}

#[test]
fn a_probe_is_the_same_request_for_every_client() {
    let service = EchoService::start();
    let probes = r#"{
        "plain": {"timeoutSeconds": 30, "httpGet": {"path": "/up?full=1"}},
        "with-headers": {"timeoutSeconds": 30, "httpGet": {"httpHeaders": [
            {"name": "Host", "value": "shop.example"}, {"name": "User-Agent", "value": "me"},
            {"name": "X-Probe", "value": "1"}, {"name": "Content-Length", "value": "5"}]}}}"#;
    let sidecar = without_a_key(&service.url(), probes).start();
    let host = format!("host: {}", service.address());
    for (name, lines) in [
        (
            "plain",
            "GET /up?full=1 HTTP/1.1|HOST|user-agent: kube-probe/",
        ),
        (
            "with-headers",
            "GET / HTTP/1.1|host: shop.example|user-agent: me|x-probe: 1",
        ),
    ] {
        let request = format!(
            "GET /probe/{name}?other=1 HTTP/1.1\r\nHost: a\r\nX-Current-User: me\r\n\
             Authorization: Bearer hush\r\nContent-Length: 4\r\n\r\nbody"
        );
        let response = exchange(sidecar.admin(), "GET", request.as_bytes());
        assert_eq!((response.status(), response.text().as_str()), (200, ""));
        assert_eq!(response.header(MARK), Vec::<String>::new());
        let received = service.take_requests();
        assert_eq!(received.len(), 1, "{received:?}");
        let head = received[0].header_lines();
        let head = [vec![received[0].first_line()], head].concat().join("\n");
        for line in lines.replace("HOST", &host).split('|') {
            has(head.to_lowercase(), line.to_lowercase());
        }
        for part in ["other", "current-user", "hush", "content-length"] {
            assert!(!head.to_lowercase().contains(part), "{part}: {head}");
        }
        assert_eq!(received[0].body, b"");
    }
}

#[test]
fn the_status_is_the_service_s() {
    let service = SocketServer::start(|request| {
        let target = String::from_utf8(request.target()).unwrap();
        match target.trim_start_matches('/') {
            "silent" => Reply::Silence,
            "no-http" => Reply::BytesThenClose(b"SSH-2.0-x\r\n\r\n".to_vec()),
            "broken-off" => {
                Reply::BytesThenClose(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx".to_vec())
            }
            "unfinished" => Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx".to_vec()),
            "endless" => Reply::Bytes(response("200 OK", &[], &[b'x'; 1024 * 1024])),
            "upgraded" => Reply::Bytes(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
                    .to_vec(),
            ),
            status => Reply::Bytes(response(status, &["Location: /silent"], b"secret")),
        }
    });
    let passed =
        [200, 204, 301, 302, 404, 429, 503].map(|status: u16| (status.to_string(), status));
    let own = [
        ("silent", 504),
        ("unfinished", 504),
        ("no-http", 502),
        ("broken-off", 502),
    ];
    let own = own.iter().chain(&[("upgraded", 502), ("endless", 200)]);
    let own = own.map(|(name, status)| ((*name).to_owned(), *status));
    let cases: Vec<(String, u16)> = passed.into_iter().chain(own).collect();
    let probe = |(name, status): &(String, u16)| {
        let timeout = if *status == 504 { 1 } else { 30 };
        let probe = json!({"httpGet": {"path": format!("/{name}")}, "timeoutSeconds": timeout});
        (name.clone(), probe)
    };
    let away = json!({"httpGet": {"port": 1}, "timeoutSeconds": 30});
    let probes = cases.iter().map(probe).chain([("away".to_owned(), away)]);
    let probes: Map<String, Value> = probes.collect();
    let upstream = format!("http://{}", service.address());
    let sidecar = without_a_key(&upstream, &Value::from(probes).to_string()).start();
    for (name, status) in cases.into_iter().chain([("away".to_owned(), 502)]) {
        let response = get(sidecar.admin(), &format!("/probe/{name}"));
        assert_eq!(response.status(), status, "{name}: {}", response.text());
        assert!(!response.text().contains("secret") && response.header("location").is_empty());
    }
}

#[test]
fn a_probe_passes_before_the_first_key_and_in_the_drain() {
    let service = EchoService::start();
    let sidecar = without_a_key(&service.url(), LIVE);
    let sidecar = sidecar.flags(["--lame-duck", "60"]).start();
    assert_eq!(sidecar.readiness(), 503, "no key");
    assert_eq!(get(sidecar.admin(), "/probe/live").status(), 200);
    sidecar.process().terminate();
    wait::until("the drain", || {
        let report = get(sidecar.admin(), "/readyz").text();
        report.contains(r#""name":"serving","ok":false"#)
    });
    assert_eq!(get(sidecar.admin(), "/probe/live").status(), 200);
}

#[test]
fn a_service_of_any_kind_is_probed() {
    let untrusted = Authority::new();
    let tls = TlsService::start(&untrusted.issue_server(&["another.example"]), None);
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("app.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(&response("202 Accepted", &[], b""));
        }
    });
    let plain = EchoService::start();
    let other_port = json!({"live": {
        "httpGet": {"port": plain.address().port(), "scheme": "HTTP"}, "timeoutSeconds": 30,
    }});
    let (tls, unix) = (tls.url("127.0.0.1"), format!("unix:{}", socket.display()));
    let (other_port, h2c) = (other_port.to_string(), format!("h2c://{}", plain.address()));
    for (upstream, probes, status) in [
        (&tls, LIVE, 200),
        (&tls, &other_port, 200),
        (&unix, LIVE, 202),
        (&unix, &other_port, 200),
        (&h2c, LIVE, 200),
    ] {
        let sidecar = without_a_key(upstream, probes).start();
        let response = get(sidecar.admin(), "/probe/live");
        assert_eq!(response.status(), status, "{upstream} {}", response.text());
    }
}

#[test]
fn a_service_is_probed_by_a_connection_or_a_health_call() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("app.sock");
    let _on_socket = H2Service::start_on_socket(&socket);
    let (grpc, plain) = (H2Service::start(), EchoService::start());
    let other = plain.address().port();
    let socket = format!("h2c+unix:{}", socket.display());
    let silent = SocketServer::start(|_| Reply::Silence);
    let silent = format!("http://{}", silent.address());
    for (upstream, probe, status) in [
        (grpc.url(), json!({"grpc": {}}), 200),
        (socket.clone(), json!({"grpc": {}}), 200),
        (grpc.url(), json!({"grpc": {"service": "down"}}), 503),
        (grpc.url(), json!({"grpc": {"service": "unknown"}}), 503),
        (grpc.url(), json!({"grpc": {"port": other}}), 502),
        (silent.clone(), json!({"grpc": {}}), 504),
        (silent, json!({"tcpSocket": {}}), 200),
        (socket, json!({"tcpSocket": {}}), 200),
        (grpc.url(), json!({"tcpSocket": {"port": other}}), 200),
        (grpc.url(), json!({"tcpSocket": {"port": 1}}), 502),
    ] {
        let mut probe = probe;
        probe["timeoutSeconds"] = if status == 504 { 1 } else { 30 }.into();
        let sidecar = without_a_key(&upstream, &json!({"live": probe}).to_string()).start();
        let response = get(sidecar.admin(), "/probe/live");
        assert_eq!(response.status(), status, "{probe} {}", response.text());
    }
}

/// Returns an address of this machine for others; no packet is sent.
fn address_for_others() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.200:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[test]
fn another_host_reaches_the_named_probes_alone() {
    let Some(host) = address_for_others() else {
        return skip(
            "requests of another host",
            "run on a machine with a network interface",
        );
    };
    let service = EchoService::start();
    let sidecar = without_a_key(&service.url(), LIVE)
        .admin_listen(SocketAddr::new(host, 0))
        .start();
    for (request, status) in [
        ("GET /probe/live", 200),
        ("HEAD /probe/live", 200),
        ("POST /probe/live", 405),
        ("GET /probe/live/", 403),
        ("GET /probe/live/../../orders/list", 403),
        ("GET /probe/live%2f..", 403),
        ("GET /probe/other", 403),
        ("GET /probe/", 403),
        ("GET /orders/healthz", 403),
        ("GET http://127.0.0.1/orders/healthz", 403),
        ("GET /", 403),
        ("POST /drain", 403),
        ("GET /livez", 200),
    ] {
        service.take_requests();
        let method = request.split(' ').next().unwrap();
        let bytes = format!("{request} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        let response = exchange(sidecar.admin(), method, bytes.as_bytes());
        assert_eq!(response.status(), status, "{request}");
        let reached: Vec<_> = service.requests().iter().map(Message::target).collect();
        let is_probe = |target: &Vec<u8>| status == 200 && target == b"/orders/healthz";
        assert!(reached.iter().all(is_probe), "{request}");
    }
}
