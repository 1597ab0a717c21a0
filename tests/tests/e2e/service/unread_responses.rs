//! Clients that send requests and read no response: their places and connections are free again
//! within `--downstream-write-timeout`.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tests::actors::auth_server::admin_get;
use tests::actors::sidecar::Sidecar;
use tests::actors::stack::ForgedStack;
use tests::services::echo_service::MARK;
use tests::services::socket_server::serve_each;
use tests::wait;
use tests::wire::certificates::Authority;
use tests::wire::h2_frames::{FrameClient, fields_of, get_fields};
use tests::wire::raw_client::RawClient;

/// Responses without a body, and the sidecar's own.
const REQUESTS: [&[u8]; 3] = [
    b"HEAD /orders/public/x HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /orders/public/x HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /orders/list HTTP/1.1\r\nHost: a\r\n\r\n",
];
/// Far more than the buffers between client and sidecar hold.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Sends requests until the peer closes.
fn stuff(mut client: impl Write, request: &[u8]) {
    let many = request.repeat(100);
    for _ in 0..MAX_BYTES / many.len() {
        if let Err(error) = client.write_all(&many) {
            let closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
            assert!(closed.contains(&error.kind()), "{error}");
            return;
        }
    }
    panic!("requests were read though no response was");
}

fn wait_for_free_permits(sidecar: &Sidecar) {
    wait::until("free places", || {
        let metrics = admin_get(sidecar.admin(), "/metrics").text();
        let free = ["requests_in_flight 0\n", "sidecar_connections 0\n"];
        free.iter().all(|line| metrics.contains(line))
    });
}

fn stack_with(more: &[String]) -> ForgedStack {
    let flags = ["--downstream-write-timeout", "1", "--max-requests", "4"];
    let more = more.iter().map(String::as_str);
    let stack = ForgedStack::with_public(flags.into_iter().chain(more));
    // A few hundred of these fill the buffers.
    let field = "a".repeat(16 * 1024);
    let no_content = format!("HTTP/1.1 204 No Content\r\n{MARK}: 1\r\nX-Field: {field}\r\n\r\n");
    stack.service.responds(no_content.into_bytes());
    stack
}

#[test]
fn unread_heads_keep_no_permit() {
    let stack = stack_with(&[]);
    let clients = REQUESTS.map(|request| {
        let client = RawClient::connect(stack.sidecar.address()).handle();
        stuff(&client, request);
        client
    });
    wait_for_free_permits(&stack.sidecar);
    assert_eq!(stack.sidecar.anonymous().status("/public/y"), 204);
    drop(clients);
}

#[test]
fn unread_heads_over_tls_keep_no_permit() {
    let authority = Authority::new();
    let tls = authority.issue("server").flags();
    let stack = stack_with(&tls);
    let trust = authority.client();
    let clients = REQUESTS.map(|request| {
        let mut client = trust.connect(stack.sidecar.address()).unwrap();
        stuff(client.writer(), request);
        client
    });
    wait_for_free_permits(&stack.sidecar);
    let another = stack.sidecar.anonymous().over_tls(&trust);
    assert_eq!(another.status("/public/y"), 204);
    drop(clients);
}

#[test]
fn an_http_2_client_that_reads_nothing_keeps_no_permit() {
    const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let stack = stack_with(&[]);
    let mut client = FrameClient::connect(stack.sidecar.address());
    client.head(1, &fields_of("POST", "/orders/public/x"), false);
    stack.sidecar.until_in_flight(1);
    stuff(client.socket(), PING);
    wait_for_free_permits(&stack.sidecar);
}

/// Behind a response that fills the socket, a client's window has room for as many small parts as it
/// has bytes, each of which would keep the buffer that it was read into.
#[test]
fn small_parts_of_an_unread_response_take_no_memory() {
    const PARTS: usize = 20_000;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let address = serve_each(move |_, mut connection| {
        let mut head = [0; 1024];
        let length = connection.read(&mut head)?;
        connection.set_nodelay(true)?;
        connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        let is_large = String::from_utf8_lossy(&head[..length]).contains("/large");
        let part = if is_large {
            vec![b'x'; 64 * 1024]
        } else {
            vec![b'x']
        };
        for _ in 0..PARTS {
            connection.write_all(&part)?;
            if !is_large {
                counter.fetch_add(1, Ordering::SeqCst);
                // Each is a segment of its own.
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    });
    let stack = ForgedStack::before(&format!("http://{address}"), &["--public-path=/public/**"]);
    let process = stack.sidecar.process();
    let mut client = FrameClient::connect(stack.sidecar.address());
    client.initial_window(1 << 30);
    client.window_update(0, 1 << 30);
    client.head(1, &get_fields("/orders/public/large"), true);
    let mut before = 0;
    wait::until("the memory of the large response", || {
        let (last, now) = (before, process.resident_kib().unwrap_or_default());
        before = now;
        std::thread::sleep(Duration::from_millis(500));
        last == now
    });
    client.head(3, &get_fields("/orders/public/small"), true);
    wait::until("the small parts", || sent.load(Ordering::SeqCst) == PARTS);
    let after = process.resident_kib().unwrap_or_default();
    assert!(
        after < before + 4 * 1024,
        "{before} KiB before, {after} KiB after"
    );
}
