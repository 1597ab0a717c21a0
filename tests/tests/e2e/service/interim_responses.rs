//! Services that send interim responses (1xx) without an end: they take no more memory and time than
//! other responses do.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tests::actors::stack::ForgedStack;
use tests::services::socket_server::serve_each;
use tests::skip::skip;
use tests::wait;
use tests::wire::h2_frames::{Fate, FrameClient, frame_of, get_fields, header_block};
use tests::wire::raw_client::RawClient;

const HTTP_1: &str = "http";
const HTTP_2: &str = "h2c";
const VERSIONS: [&str; 2] = [HTTP_1, HTTP_2];
const PATH: &str = "/orders/public/x";
/// Max growth of memory beside a flood of far more.
const FLAT_KIB: u64 = 12 * 1024;
/// Interim responses of 1 KiB each.
const FLOOD: usize = 48 * 1024;

fn get() -> Vec<u8> {
    format!("GET {PATH} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// Returns an interim response in a version of HTTP.
fn interim(version: &str, status: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    if version == HTTP_2 {
        let fields = [&[(":status", status)], fields].concat();
        return frame_of(1, 4, 1, &header_block(&fields));
    }
    let lines = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    format!(
        "HTTP/1.1 {status} Interim\r\n{}\r\n",
        lines.collect::<String>()
    )
    .into_bytes()
}

/// Reads the head of a request, and begins HTTP/2.
fn accept(version: &str, connection: &mut TcpStream) -> std::io::Result<()> {
    if version == HTTP_1 {
        return connection.read(&mut [0; 16 * 1024]).map(drop);
    }
    connection.write_all(&frame_of(4, 0, 0, &[]))?;
    connection.read_exact(&mut [0; 24])?;
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head)?;
        let [_, high, low, kind, ..] = head;
        connection.read_exact(&mut vec![0; usize::from(high) << 8 | usize::from(low)])?;
        if kind == 1 {
            return Ok(());
        }
    }
}

/// Starts a sidecar before a service that responds by calling `respond`.
fn before<F>(version: &'static str, timeout: &str, respond: F) -> ForgedStack
where
    F: Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
{
    let address = serve_each(move |_, mut connection| {
        accept(version, &mut connection)?;
        respond(&mut connection)
    });
    let flags = ["--public-path=/public/**", timeout];
    ForgedStack::before(&format!("{version}://{address}"), &flags)
}

/// Sends a request by a client that reads nothing.
fn silent_client(version: &str, address: SocketAddr) -> TcpStream {
    if version == HTTP_1 {
        let mut client = RawClient::connect(address);
        client.send(&get());
        return client.handle();
    }
    let mut client = FrameClient::connect(address);
    client.head(1, &get_fields(PATH), true);
    client.into_socket()
}

#[test]
fn unread_interim_responses_take_no_memory() {
    for from in VERSIONS {
        for to in VERSIONS {
            let ended = Arc::new(AtomicBool::new(false));
            let has_ended = Arc::clone(&ended);
            let stack = before(from, "--upstream-read-timeout=60", move |connection| {
                // It may have to wait for the client.
                connection.set_write_timeout(Some(Duration::from_secs(2)))?;
                let mut numbers = 0..FLOOD;
                let sent = numbers.try_for_each(|number| {
                    // Unlike the last one, which a table of the compression may hold.
                    let link = format!("{number}{}", "a".repeat(1000));
                    connection.write_all(&interim(from, "103", &[("link", &link)]))
                });
                has_ended.store(true, Ordering::SeqCst);
                sent
            });
            let process = stack.sidecar.process();
            let Some(idle) = process.resident_kib() else {
                return skip("the memory of interim responses", "a system with /proc");
            };
            let client = silent_client(to, stack.sidecar.address());
            wait::until("the end of the flood", || ended.load(Ordering::SeqCst));
            let busy = process.resident_kib().unwrap();
            assert!(
                busy < idle + FLAT_KIB,
                "from {from} to {to}: {idle} KiB before, {busy} KiB after"
            );
            drop(client);
        }
    }
}

#[test]
fn interim_responses_give_a_service_no_more_time() {
    let begun = b"HTTP/1.1 200 OK\r\n".to_vec();
    let mut rows = vec![(HTTP_1, begun, b"X-Part: 1\r\n".to_vec())];
    for version in VERSIONS {
        for (status, fields) in [("103", &[("link", "</a>")][..]), ("102", &[])] {
            rows.push((version, Vec::new(), interim(version, status, fields)));
        }
    }
    for (from, begin, part) in rows {
        for to in VERSIONS {
            let what = format!("to {to} from {from} {}", part.escape_ascii());
            let (begin, part) = (begin.clone(), part.clone());
            let stack = before(from, "--upstream-read-timeout=1", move |connection| {
                connection.write_all(&begin)?;
                loop {
                    connection.write_all(&part)?;
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            let body = match to {
                HTTP_1 => {
                    let mut client = RawClient::connect(stack.sidecar.address());
                    client.send(&get());
                    client.response("GET").text()
                }
                _ => {
                    let mut client = FrameClient::connect(stack.sidecar.address());
                    client.head(1, &get_fields(PATH), true);
                    match client.fate(1) {
                        Fate::Response(body) => body,
                        fate => panic!("{what}: {fate:?}"),
                    }
                }
            };
            assert!(body.contains("upstream_timeout"), "{what}: {body}");
        }
    }
}
