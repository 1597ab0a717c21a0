//! Bytes that arrive before the response is sent, and the end of the client behind them.
//! Requests that are pipelined: `tests::cuts`.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use tests::actors::stack::ForgedStack;
use tests::services::echo_service::MARK;
use tests::services::socket_server::{Reply, SocketServer, response};
use tests::wire::raw_client::RawClient;

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
