//! Bytes that arrive before the response is sent, and the end of the client behind them.
//! Requests that are pipelined: `tests::cuts`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use tests::actors::abuse::fill;
use tests::actors::stack::ForgedStack;
use tests::services::echo_service::MARK;
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::wire::raw_client::{COMPLETION, HANDSHAKE, RawClient, head_with_token};

/// Starts a service that echoes the target of each request, once per message on the channel.
fn gated_service() -> (SocketServer, Sender<()>) {
    let (go, go_ahead) = channel();
    let go_ahead = Mutex::new(go_ahead);
    let service = SocketServer::start(move |request| {
        go_ahead.lock().unwrap().recv().unwrap();
        Reply::Bytes(response(
            "200 OK",
            &[&format!("{MARK}: 1")],
            &request.target(),
        ))
    });
    (service, go)
}

fn before(service: &SocketServer) -> ForgedStack {
    let upstream = format!("http://{}", service.address());
    ForgedStack::before(&upstream, &["--public-path", "/public/**"])
}

#[test]
fn a_client_that_left_is_noticed_behind_what_it_sent_ahead() {
    let (service, go) = gated_service();
    let stack = before(&service);
    let (sidecar, token) = (&stack.sidecar, stack.token());
    let get = "GET /orders/public/1 HTTP/1.1\r\nHost: a\r\n\r\n";
    let post = "POST /orders/public/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let handshake = format!(
        "GET /orders/ws HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let many = get.repeat(500);
    for (request, ahead) in [
        (get, ""),
        (get, "G"),
        (post, "\r\n"),
        (get, &many),
        (&handshake, "G"),
        // A malformed request, in the same segment as the good one.
        (&format!("{get}\n"), "G"),
    ] {
        let mut client = RawClient::connect(stack.sidecar.address());
        client.send(request.as_bytes());
        sidecar.until_in_flight(1);
        client.send(ahead.as_bytes());
        drop(client);
        sidecar.until_idle();
    }
    for _ in service.requests() {
        go.send(()).unwrap();
    }
}

/// The service takes no more of what the client has sent, so the end of its connection is not read.
#[test]
fn a_client_that_leaves_a_tunnel_behind_unread_bytes_is_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    let stack = ForgedStack::before(&upstream, &[]);
    let serving = thread::spawn(move || {
        let (mut service, _) = listener.accept().unwrap();
        assert!(service.read(&mut [0; 4096]).unwrap() > 0);
        let head = format!("HTTP/1.1 101 Switching Protocols\r\n{MARK}: 1\r\n{COMPLETION}\r\n");
        service.write_all(head.as_bytes()).unwrap();
        service
    });
    let mut client = TcpStream::connect(stack.sidecar.address()).unwrap();
    let handshake = head_with_token("GET", "/orders/ws", &stack.token(), HANDSHAKE);
    client.write_all(&handshake).unwrap();
    let service = serving.join().unwrap();
    // Left unread, the head lets the close reset the connection.
    assert_eq!(client.peek(&mut [0]).unwrap(), 1);
    fill(&mut client, &[b'x'; 4096]).unwrap();
    drop(client);
    stack.sidecar.until_idle();
    drop(service);
}
