//! Bytes that a service sends after the end of a response: no other client gets them as a response.

use std::io::{BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tests::actors::stack::ForgedStack;
use tests::services::echo_service::MARK;
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::wire::message::Message;
use tests::wire::metrics;
use tests::wire::raw_client::{HANDSHAKE, RawClient, head_with_token};

const SURPLUS: &str = "postern_sidecar_upstream_sent_surplus";
const FOREIGN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL";

/// Methods and heads of responses behind which the service sends one more response.
const KINDS: [(&str, &str); 6] = [
    ("DELETE", "204 No Content\r\n"),
    ("GET", "304 Not Modified\r\n"),
    ("HEAD", "200 OK\r\n"),
    ("PUT", "200 OK\r\nContent-Length: 0\r\n"),
    ("GET", "200 OK\r\nContent-Length: 2\r\n"),
    ("GET", "200 OK\r\nTransfer-Encoding: chunked\r\n"),
];

/// Serves one connection: the target as the body, but for `/spoil` the head of its kind and then, once
/// `pause` is over, a response without a request. Each one that was written is announced.
fn serve(
    mut connection: impl Read + Write,
    head: &str,
    pause: Duration,
    written: &Sender<()>,
) -> std::io::Result<()> {
    loop {
        let mut reader = BufReader::with_capacity(1, &mut connection);
        let Some(request) = Message::read_request(&mut reader)? else {
            return Ok(());
        };
        if !request.target().ends_with(b"/spoil") {
            let own = response("200 OK", &[&format!("{MARK}: 1")], &request.target());
            connection.write_all(&own)?;
            continue;
        }
        let body = match head {
            head if head.contains("Length: 2") => "ok",
            head if head.contains("chunked") => "2\r\nok\r\n0\r\n\r\n",
            _ => "",
        };
        connection.write_all(format!("HTTP/1.1 {head}{MARK}: 1\r\n\r\n{body}").as_bytes())?;
        std::thread::sleep(pause);
        // Without an acknowledgement of the first write it stays in the kernel (Nagle's algorithm).
        connection.write_all(FOREIGN)?;
        let _ = written.send(());
    }
}

/// Starts the service on a free port, or on a socket; returns its URL.
fn start(socket: Option<&Path>, head: &'static str, pause: Duration) -> (String, Receiver<()>) {
    let (written, announced) = channel();
    let serve_one = move |connection: Box<dyn Connection>| {
        let written = written.clone();
        std::thread::spawn(move || serve(connection, head, pause, &written));
    };
    let url = match socket {
        Some(path) => {
            let listener = UnixListener::bind(path).unwrap();
            std::thread::spawn(move || {
                let connections = listener.incoming().flatten();
                connections.for_each(|connection| serve_one(Box::new(connection)));
            });
            format!("unix:{}", path.display())
        }
        None => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            std::thread::spawn(move || {
                let connections = listener.incoming().flatten();
                connections.for_each(|connection| serve_one(Box::new(connection)));
            });
            url
        }
    };
    (url, announced)
}

trait Connection: Read + Write + Send {}

impl<C: Read + Write + Send> Connection for C {}

/// Sends a request on a connection of its own; returns the body.
fn victim(address: std::net::SocketAddr, number: usize) -> (String, String) {
    let target = format!("/orders/{number}");
    let mut client = RawClient::connect(address);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    (target, client.response("GET").text())
}

#[test]
fn surplus_of_a_response_reaches_no_client_and_is_remembered() {
    let (stack, directory) = (ForgedStack::start(), tempfile::tempdir().unwrap());
    for (kind, (method, head)) in KINDS.into_iter().enumerate() {
        let socket = directory.path().join(format!("{kind}.sock"));
        for socket in [None, Some(&*socket)] {
            let (url, written) = start(socket, head, Duration::ZERO);
            let sidecar = stack.in_front_of(&url, &["--public-path", "/**"]);
            let mut client = RawClient::connect(sidecar.address());
            client.send(format!("{method} /orders/spoil HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            client.response(method);
            written.recv().unwrap();
            for number in 0..20 {
                let (target, body) = victim(sidecar.address(), number);
                assert_eq!(body, target, "{method} {head} {socket:?}");
                // Beyond the rest of a connection before another client.
                std::thread::sleep(Duration::from_millis(5));
            }
            let logged = format!("one request only method={method} path=/orders/spoil");
            sidecar.until_logged(&logged);
            assert_eq!(metrics::value(sidecar.admin(), SURPLUS), Some(1), "{head}");
        }
    }
}

#[test]
fn after_surplus_the_service_reads_that_each_connection_ends() {
    let service = SocketServer::start(|_| {
        let own = response("200 OK", &[&format!("{MARK}: 1")], b"ok");
        Reply::Bytes([&own, FOREIGN].concat())
    });
    let url = format!("http://{}", service.address());
    let stack = ForgedStack::before(&url, &["--upstream-reuse-after-body", "true"]);
    for (method, lines, body, connection) in [
        ("GET", "", "", None),
        ("GET", "", "", Some("close")),
        ("POST", "Content-Length: 2\r\n", "{}", Some("close")),
        ("GET", HANDSHAKE, "", Some("Upgrade")),
    ] {
        let mut client = RawClient::connect(stack.sidecar.address());
        client.send(&head_with_token(method, "/orders/x", &stack.token(), lines));
        client.send(body.as_bytes());
        client.response(method);
        let seen = service.requests().last().unwrap().header("connection");
        assert_eq!(
            seen.first().map(String::as_str),
            connection,
            "{method} {lines}"
        );
    }
}

#[test]
fn later_surplus_is_seen_where_responses_are_fast() {
    let stack = ForgedStack::start();
    for pause in [10, 20, 50] {
        let (_, head) = KINDS[0];
        let (url, written) = start(None, head, Duration::from_millis(pause));
        let sidecar = stack.in_front_of(&url, &["--public-path", "/**"]);
        let mut client = RawClient::connect(sidecar.address());
        let mut foreign = 0;
        for round in 0..10 {
            client.send(b"DELETE /orders/spoil HTTP/1.1\r\nHost: a\r\n\r\n");
            client.response("DELETE");
            for number in 0..20 {
                let (target, body) = victim(sidecar.address(), round * 100 + number);
                foreign += usize::from(body != target);
                std::thread::sleep(Duration::from_millis(4));
            }
            written.recv().unwrap();
        }
        assert!(foreign <= 1, "{pause} ms: {foreign} foreign responses");
        assert_eq!(metrics::value(sidecar.admin(), SURPLUS), Some(1), "{pause}");
    }
}
