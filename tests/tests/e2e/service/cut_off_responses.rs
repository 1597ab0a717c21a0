//! Responses that end early: no client takes one for a whole one, however it finds the end of the
//! body (RFC 9112 §8), and no whole one is cut off.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;
use tests::actors::stack::ForgedStack;
use tests::services::socket_server::serve_each;
use tests::wire::certificates::Authority;
use tests::wire::clock;
use tests::wire::raw_client::RawClient;
use tests::wire::tls::Trust;

const LENGTH: &str = "Content-Length: 100\r\n";
const CHUNKS: &str = "Transfer-Encoding: chunked\r\n";
const UNTIL_CLOSE: &str = "";
/// Request lines without the target, and the field that ends or keeps the connection.
const CLIENTS: [(&str, &str); 4] = [
    ("HTTP/1.0", ""),
    ("HTTP/1.0", "Connection: keep-alive\r\n"),
    ("HTTP/1.1", ""),
    ("HTTP/1.1", "Connection: close\r\n"),
];
/// More than the buffers between service and client hold.
const LARGE: usize = 12 * 1024 * 1024;

/// The end of a response at the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Close,
    Reset,
    Garbage,
    Silence,
}

fn request((version, connection): (&str, &str), fields: &str) -> Vec<u8> {
    format!("GET /orders/public/x {version}\r\nHost: a\r\n{connection}{fields}\r\n").into_bytes()
}

/// Starts a service that ends each response after a part.
fn service(framing: &'static str, end: End) -> String {
    let address = serve_each(move |_, mut connection| {
        // What stays unread makes a reset of the close.
        connection.peek(&mut [0; 16])?;
        if end != End::Reset {
            connection.read(&mut [0; 16 * 1024]).map(drop)?;
        }
        let part = if framing == CHUNKS {
            "4\r\nhalf\r\n"
        } else {
            "half"
        };
        write!(connection, "HTTP/1.1 200 OK\r\n{framing}\r\n{part}")?;
        // The part arrives before the end.
        std::thread::sleep(Duration::from_millis(200));
        match end {
            End::Close | End::Reset => Ok(()),
            End::Garbage => connection.write_all(b"no chunk\r\n"),
            End::Silence => connection.read(&mut [0; 1]).map(drop),
        }
    });
    format!("http://{address}")
}

/// Reads a response to its end; returns its body, and true if it looks whole.
fn outcome(mut connection: impl Read) -> (Vec<u8>, bool) {
    let mut received = Vec::new();
    let is_in_order = connection.read_to_end(&mut received).is_ok();
    let end = received.windows(4).position(|four| four == b"\r\n\r\n");
    let body = received.split_off(end.map_or(received.len(), |end| end + 4));
    let head = String::from_utf8_lossy(&received).to_ascii_lowercase();
    let is_whole = if head.contains("transfer-encoding: chunked") {
        body.ends_with(b"0\r\n\r\n")
    } else if let Some((_, rest)) = head.split_once("content-length: ") {
        rest.lines().next() == Some(&body.len().to_string())
    } else {
        is_in_order
    };
    (body, is_whole)
}

/// Sends a request, over TLS if there is a `trust`, and returns the outcome.
fn sent(address: SocketAddr, trust: Option<&Trust>, request: &[u8]) -> (Vec<u8>, bool) {
    let Some(trust) = trust else {
        let mut client = RawClient::connect(address);
        client.send(request);
        return outcome(client.handle());
    };
    let mut client = trust.connect(address).unwrap();
    client.send(request);
    outcome(client.reader())
}

/// Starts a sidecar with TLS or without, and what its clients trust.
fn before(upstream: &str, authority: Option<&Authority>) -> (ForgedStack, Option<Trust>) {
    let tls = authority.map(|authority| authority.issue("server").flags());
    let mut flags = vec![
        "--public-path=/public/**",
        "--upstream-read-timeout=1",
        "--leeway=0",
    ];
    flags.extend(["--lame-duck=0", "--drain-timeout=1"]);
    flags.extend(tls.iter().flatten().map(String::as_str));
    let stack = ForgedStack::before(upstream, &flags);
    (stack, authority.map(Authority::client))
}

#[test]
fn a_response_that_breaks_off_is_never_taken_for_a_whole_one() {
    let authority = Authority::new();
    for (framing, end) in [
        (LENGTH, End::Close),
        (LENGTH, End::Reset),
        (LENGTH, End::Silence),
        (CHUNKS, End::Close),
        (CHUNKS, End::Reset),
        (CHUNKS, End::Garbage),
        (CHUNKS, End::Silence),
        (UNTIL_CLOSE, End::Reset),
        (UNTIL_CLOSE, End::Silence),
    ] {
        let upstream = service(framing, end);
        // Without TLS: every cut of `tests::cuts`.
        let (stack, trust) = before(&upstream, Some(&authority));
        for client in CLIENTS {
            let request = request(client, "");
            let (body, is_whole) = sent(stack.sidecar.address(), trust.as_ref(), &request);
            let what = format!("{framing:?} {end:?} {client:?}");
            assert!(!is_whole, "{what}: {}", body.escape_ascii());
        }
    }
}

#[test]
fn a_body_without_a_length_is_cut_off_whatever_ends_it() {
    let authority = Authority::new();
    let service = || {
        let address = serve_each(|_, mut connection| {
            connection.read(&mut [0; 16 * 1024]).map(drop)?;
            connection
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nhalf")?;
            connection.read(&mut [0; 1]).map(drop)
        });
        format!("http://{address}")
    };
    for tls in [None, Some(&authority)] {
        for cause in ["the token", "the client", "TERM", "KILL"] {
            let (stack, trust) = before(&service(), tls);
            let now = clock::now();
            let token = stack.forge.token(now, &json!({"exp": now + 4}));
            let accept = "Accept: text/event-stream\r\n";
            let fields = format!("Authorization: Bearer {token}\r\n{accept}");
            let request = request(CLIENTS[0], &fields);
            let process = stack.sidecar.process();
            let end_with = |socket: &TcpStream| match cause {
                "the token" => {}
                // A client that has sent all may close its side.
                "the client" => socket.shutdown(Shutdown::Write).unwrap(),
                signal => process.signal(signal),
            };
            let (body, is_whole) = match &trust {
                None => {
                    let mut client = RawClient::connect(stack.sidecar.address());
                    client.send(&request);
                    client.text_until("half");
                    end_with(&client.handle());
                    outcome(client.handle())
                }
                Some(trust) => {
                    let mut client = trust.connect(stack.sidecar.address()).unwrap();
                    client.send(&request);
                    let mut byte = [0; 1];
                    while byte != *b"f" {
                        client.reader().read_exact(&mut byte).unwrap();
                    }
                    end_with(client.socket());
                    outcome(client.reader())
                }
            };
            assert!(
                !is_whole,
                "{cause} {}: {}",
                tls.is_some(),
                body.escape_ascii()
            );
        }
    }
}

#[test]
fn a_whole_response_arrives_whole_however_it_is_framed() {
    let authority = Authority::new();
    for framing in [LENGTH, CHUNKS, UNTIL_CLOSE] {
        let address = serve_each(move |_, mut connection| {
            connection.read(&mut [0; 16 * 1024]).map(drop)?;
            let body = vec![b'x'; LARGE];
            match framing {
                LENGTH => write!(
                    connection,
                    "HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n"
                )?,
                _ => write!(connection, "HTTP/1.1 200 OK\r\n{framing}\r\n")?,
            }
            if framing != CHUNKS {
                return connection.write_all(&body);
            }
            write!(connection, "{LARGE:x}\r\n")?;
            connection.write_all(&body)?;
            connection.write_all(b"\r\n0\r\n\r\n")
        });
        for tls in [None, Some(&authority)] {
            let (stack, trust) = before(&format!("http://{address}"), tls);
            for client in [CLIENTS[0], CLIENTS[3]] {
                let what = format!("{framing:?} {client:?} {}", tls.is_some());
                let request = request(client, "");
                let (body, is_whole) = sent(stack.sidecar.address(), trust.as_ref(), &request);
                assert!(is_whole && body.len() >= LARGE, "{what}: {}", body.len());
            }
        }
    }
}
