use axum::body::Body;
use axum::routing::post;
use postern_process::supervisor::supervisor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tower::ServiceExt;

use super::*;
use crate::net::listener::{self, Port};

const LONG: Duration = Duration::from_secs(30);

fn extra() -> Router {
    Router::new().route("/", get(async || "status page"))
}

fn open() -> Router {
    Router::new().route("/probe/live", get(StatusCode::NO_CONTENT))
}

/// The status and body `peer` gets.
async fn response(health: &Health, peer: &str, path: &str) -> (u16, String) {
    response_to(health, peer, "127.0.0.1:9001", path).await
}

async fn response_to(health: &Health, peer: &str, hosts: &str, path: &str) -> (u16, String) {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    for host in hosts.split(", ") {
        let fields = request.headers_mut();
        fields.append(header::HOST, host.parse().unwrap());
    }
    let peer = ConnectInfo(peer.parse::<SocketAddr>().unwrap());
    request.extensions_mut().insert(peer);
    let routes = routes(health.clone(), Arc::default(), open(), extra());
    let response = routes.oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 64 * 1024).await;
    (status, String::from_utf8(body.unwrap().to_vec()).unwrap())
}

#[tokio::test]
async fn the_probes_follow_the_health() {
    let health = Health::new();
    let key = health.condition("signing_key", "no key pair yet");
    key.warn(Some("of /store".to_owned()));
    let peer = "10.0.0.7:40000";
    assert_eq!(response(&health, peer, "/livez").await.0, 200);
    assert_eq!(response(&health, peer, "/startupz").await.0, 503);
    let whole = r#"[{"name":"started","ok":false,"reason":"starting"},{"name":"signing_key","ok":false,"reason":"no key pair yet","note":"of /store"}"#;
    let of_others = r#"[{"name":"started","ok":false,"reason":null},{"name":"signing_key","ok":false,"reason":null}"#;
    let (own, loopback) = ("127.0.0.1:9001", "127.0.0.1:40000");
    for (peer, host, expected) in [
        (loopback, own, whole),
        (loopback, "evil.example", of_others),
        (peer, own, of_others),
    ] {
        let (status, report) = response_to(&health, peer, host, "/readyz").await;
        assert_eq!(status, 503, "{peer} {host}");
        // The files of this process may stand behind.
        assert!(report.starts_with(expected), "{peer} {host}: {report}");
    }

    key.set_ready();
    assert_eq!(response(&health, peer, "/readyz").await.0, 503);
    health.set_started();
    assert_eq!(response(&health, peer, "/startupz").await.0, 200);
    let (status, report) = response(&health, peer, "/readyz").await;
    assert_eq!(status, 200);
    let ready = r#"{"name":"signing_key","ok":true,"reason":null}"#;
    assert!(report.contains(ready), "{report}");

    let files = health.files("configuration");
    files.reloaded(Some("line 1"));
    let (status, report) = response(&health, loopback, "/readyz").await;
    assert_eq!(status, 200);
    let (name, cause) = (r#""name":"configuration","ok":true"#, r#"in use: line 1"}"#);
    assert!(report.contains(name) && report.contains(cause), "{report}");
    let (_, report) = response(&health, peer, "/readyz").await;
    assert!(
        report.contains(name) && !report.contains("line 1"),
        "{report}"
    );
    files.reloaded(None);
    let (_, report) = response(&health, loopback, "/readyz").await;
    assert!(!report.contains("rejected"), "{report}");

    key.set_not_ready("the store is away");
    assert_eq!(response(&health, peer, "/readyz").await.0, 503);
    assert_eq!(response(&health, peer, "/startupz").await.0, 200);
}

#[tokio::test]
async fn what_is_not_a_probe_responds_to_loopback_peers_only() {
    let health = Health::new();
    for (peer, path, status) in [
        ("127.0.0.1:1", "/", 200),
        ("[::1]:1", "/", 200),
        ("[::ffff:127.0.0.1]:1", "/", 200),
        ("127.0.0.1:1", "/nothing", 404),
        ("10.0.0.7:1", "/", 403),
        ("[::ffff:10.0.0.7]:1", "/", 403),
        ("[fd00::7]:1", "/", 403),
        ("10.0.0.7:1", "/nothing", 403),
        ("10.0.0.7:1", "/livez/", 403),
        ("10.0.0.7:1", "//livez", 403),
        ("10.0.0.7:1", "/probe/live", 204),
        ("10.0.0.7:1", "/probe/live?of=it", 204),
        ("10.0.0.7:1", "/probe/live/", 403),
        ("10.0.0.7:1", "/probe/LIVE", 403),
        ("10.0.0.7:1", "/probe/l%69ve", 403),
        ("10.0.0.7:1", "/probe/../probe/live", 403),
        ("10.0.0.7:1", "/probe/another", 403),
        ("10.0.0.7:1", "/probe/", 403),
        ("127.0.0.1:1", "/probe/another", 404),
    ] {
        let found = response(&health, peer, path).await.0;
        assert_eq!(found, status, "{peer} {path}");
    }
}

#[tokio::test]
async fn a_name_made_to_lead_here_reaches_only_the_probes() {
    let health = Health::new();
    for (host, status) in [
        ("127.0.0.1:9001", 200),
        ("127.0.0.1", 200),
        ("[::1]:9001", 200),
        ("localhost:9001", 200),
        ("LOCALHOST", 200),
        ("evil.example", 421),
        ("evil.example:9001", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("user@127.0.0.1.evil.example", 421),
        ("", 421),
    ] {
        let page = response_to(&health, "127.0.0.1:1", host, "/").await;
        assert_eq!(page.0, status, "{host}");
        let probe = response_to(&health, "127.0.0.1:1", host, "/livez").await;
        assert_eq!(probe.0, 200, "{host}");
    }
}

#[tokio::test]
async fn a_request_with_two_hosts_is_rejected_by_the_probes_too() {
    for path in ["/", "/livez", "/metrics"] {
        let hosts = "127.0.0.1, evil.example";
        let response = response_to(&Health::new(), "127.0.0.1:1", hosts, path).await;
        assert_eq!(response.0, 400, "{path}");
    }
}

/// An admin port on a real socket, how to end it, and its end.
fn running() -> (
    SocketAddr,
    oneshot::Sender<()>,
    JoinHandle<std::io::Result<()>>,
) {
    let listener = listener::bind(Port::Admin, "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { _ = stopped.await };
    (address, stop, serving(listener, extra(), shutdown))
}

fn serving(
    listener: std::net::TcpListener,
    extra: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<std::io::Result<()>> {
    let (health, metrics) = (Health::new(), Arc::default());
    let (background, _) = supervisor();
    tokio::spawn(async move {
        serve(
            listener,
            health,
            metrics,
            open(),
            extra,
            &background,
            shutdown,
        )
        .await
    })
}

const PROBE: &str = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Returns what a client gets for these bytes until the end of the connection.
async fn exchange(client: &mut TcpStream, request: &str) -> String {
    client.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    let read = client.read_to_string(&mut response);
    let _ = tokio::time::timeout(LONG, read).await.unwrap();
    response
}

#[tokio::test]
async fn the_peer_is_the_connection_s_and_the_end_is_graceful() {
    let (address, stop, served) = running();
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let response = exchange(&mut client, request).await;
    let is_page = response.starts_with("HTTP/1.1 200") && response.ends_with("status page");
    assert!(is_page, "{response}");

    let _idle = TcpStream::connect(address).await.unwrap();
    stop.send(()).unwrap();
    served.await.unwrap().unwrap();
    assert!(
        TcpStream::connect(address).await.is_err(),
        "the port is closed"
    );
}

#[tokio::test]
async fn half_a_body_is_waited_for_no_longer_than_half_a_header() {
    let echo = Router::new().route("/", post(async |body: String| body));
    let brief = Duration::from_millis(200);
    let echo = echo.layer(middleware::from_fn_with_state(brief, in_time));
    let listener = listener::bind(Port::Admin, "127.0.0.1:0".parse().unwrap()).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    serving(listener, echo, std::future::pending());

    let request = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\nhalf";
    let response = exchange(&mut client, request).await;
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
}

/// A connection from `peer`, an address of this machine.
async fn connect_from(peer: &str, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind(SocketAddr::new(peer.parse().unwrap(), 0))
        .unwrap();
    socket.connect(address).await.unwrap()
}

#[tokio::test]
#[expect(clippy::panic, reason = "a route that panics is what this is about")]
async fn a_route_that_panics_ends_its_own_connection_and_nothing_else() {
    let listener = listener::bind(Port::Admin, "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Router::new().route("/panics", get(async || -> &str { panic!("oh") }));
    serving(listener, routes, std::future::pending());
    for (path, begin) in [("/panics", ""), ("/livez", "HTTP/1.1 200")] {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        let response = exchange(&mut client, &request).await;
        assert_eq!(response.get(..12).unwrap_or_default(), begin, "{path}");
    }
}

/// The crowd connects before the port accepts, from the address of the probe.
async fn probe_before_a_crowd() -> String {
    let listener = listener::bind(Port::Admin, "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut probe = connect_from("127.0.0.2", address).await;
    probe.write_all(PROBE.as_bytes()).await.unwrap();
    let mut crowd = Vec::new();
    for _ in 0..3 * ADMIN_CONNECTIONS {
        crowd.push(connect_from("127.0.0.2", address).await);
    }
    serving(listener, extra(), std::future::pending());
    exchange(&mut probe, "").await
}

#[tokio::test]
async fn a_sent_request_gets_its_response_whatever_comes_after_it() {
    let response = probe_before_a_crowd().await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_it_is_on_several_threads() {
    let response = probe_before_a_crowd().await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response:?}");
}

#[tokio::test]
async fn a_client_that_hoards_connections_loses_the_oldest() {
    let (address, _stop, _served) = running();
    let mut single = connect_from("127.0.0.3", address).await;
    let mut hoarded = Vec::new();
    for _ in 0..3 * MAX_OF_LOOPBACK {
        hoarded.push(connect_from("127.0.0.2", address).await);
    }
    // All but those that have a slot; no other timeout ends so soon.
    for stream in hoarded.iter_mut().take(2 * MAX_OF_LOOPBACK + 1) {
        let ended = tokio::time::timeout(TIMEOUT / 2, stream.read(&mut [0; 1])).await;
        assert!(!matches!(ended.unwrap(), Ok(1..)));
    }
    for stream in [&mut single, &mut connect_from("127.0.0.1", address).await] {
        let response = exchange(stream, PROBE).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
}
