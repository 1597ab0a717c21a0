//! A service of HTTP/2 that goes away, and one that changes its version between connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, mpsc};

use rustls::{ServerConnection, StreamOwned};
use tests::services::echo_service::MARK;
use tests::services::socket_server::{response, serve_each};
use tests::wire::certificates::{Authority, Certificate};
use tests::wire::h2_frames::header_block;
use tests::wire::message::Message;
use tests::wire::raw_client::HANDSHAKE;

use super::upstreams::LONG_CONNECT;
use crate::e2e::access::explain::service_lines;
use crate::e2e::requests::forwarding::stack;

/// RFC 9113 §6 and §7.
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const END_STREAM_AND_HEADERS: u8 = 5;

/// The service's side of a connection of HTTP/2.
struct Frames<S>(S);

impl<S: Read + Write> Frames<S> {
    /// Reads the preface, and sends empty settings.
    fn begin(mut stream: S) -> std::io::Result<Self> {
        stream.read_exact(&mut [0; 24])?;
        let mut frames = Self(stream);
        frames.write(SETTINGS, 0, 0, &[])?;
        Ok(frames)
    }

    fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.write_all(&[&head, payload].concat())?;
        self.0.flush()
    }

    /// Waits for the head of the next request, and returns its stream.
    fn next_request(&mut self) -> std::io::Result<u32> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head)?;
            let length = usize::from(head[1]) << 8 | usize::from(head[2]);
            self.0.read_exact(&mut vec![0; length])?;
            if head[3] == HEADERS {
                return Ok(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
            }
        }
    }

    /// Responds with a head alone.
    fn respond(&mut self, stream: u32) -> std::io::Result<()> {
        let head = header_block(&[(":status", "200"), (&MARK.to_lowercase(), "1")]);
        self.write(HEADERS, END_STREAM_AND_HEADERS, stream, &head)
    }

    fn go_away(&mut self, last: u32, code: u32) -> std::io::Result<()> {
        let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
        self.write(GOAWAY, 0, 0, &payload)
    }
}

/// The first connection responds to one request, takes two more, and goes away behind `last`; every
/// other one responds.
fn goes_away(last: u32, code: u32) -> (SocketAddr, mpsc::Receiver<(usize, u32)>) {
    let (sink, seen) = mpsc::channel();
    let address = serve_each(move |number, stream| {
        let mut frames = Frames::begin(stream)?;
        loop {
            let stream = frames.next_request()?;
            let _ = sink.send((number, stream));
            match (number, stream) {
                (0, 3) => {}
                (0, 5) => {
                    frames.go_away(last, code)?;
                    if last == 3 && code == NO_ERROR {
                        frames.respond(3)?;
                    } else {
                        return Err(ErrorKind::BrokenPipe.into());
                    }
                }
                _ => frames.respond(stream)?,
            }
        }
    });
    (address, seen)
}

#[test]
fn what_a_service_that_goes_away_has_not_taken_is_sent_again() {
    // The last stream that it has taken, and the verdicts of POST on the streams 3 and 5.
    let lost = "502 upstream_unavailable";
    for (last, code, verdicts) in [
        (3, NO_ERROR, ["200", "200"]),
        // It may have processed both.
        (5, NO_ERROR, [lost, lost]),
        (3, INTERNAL_ERROR, [lost, lost]),
    ] {
        let (address, seen) = goes_away(last, code);
        let stack = stack();
        let sidecar = stack.in_front_of(&format!("h2c://{address}"), &[]);
        let client = sidecar.bearing(&stack.token());
        assert_eq!(client.get("/list").status(), 200);
        assert_eq!(seen.recv(), Ok((0, 1)));
        let post = || {
            client
                .send(&client.request("POST", "/list").body("{}"))
                .verdict()
        };
        let found = std::thread::scope(|scope| {
            let first = scope.spawn(post);
            assert_eq!(seen.recv(), Ok((0, 3)));
            let second = scope.spawn(post);
            assert_eq!(seen.recv(), Ok((0, 5)));
            [first.join().unwrap(), second.join().unwrap()]
        });
        assert_eq!(found, verdicts, "{last} {code}");
        let again: Vec<_> = seen.try_iter().collect();
        let expected = verdicts.iter().filter(|one| **one == "200").count();
        assert_eq!(
            again.len(),
            expected.saturating_sub(1),
            "{last} {code}: {again:?}"
        );
    }
}

/// Serves one request of a connection over TLS, in the only version that it offers.
fn serve_one(certificate: &Certificate, version: &str, stream: TcpStream) -> std::io::Result<()> {
    let mut config = (*certificate.serving(None)).clone();
    config.alpn_protocols = vec![version.as_bytes().to_vec()];
    let connection = ServerConnection::new(Arc::new(config)).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    if version == "h2" {
        let mut frames = Frames::begin(stream)?;
        let request = frames.next_request()?;
        frames.go_away(request, NO_ERROR)?;
        frames.respond(request)?;
        // Until the sidecar closes it: bytes that are left unread would cut the response off.
        while frames.next_request().is_ok() {}
        Ok(())
    } else {
        let mut reader = std::io::BufReader::new(&mut stream);
        Message::read_request(&mut reader)?;
        let closing = response(
            "200 OK",
            &["Connection: close", &format!("{MARK}: 1")],
            version.as_bytes(),
        );
        stream.write_all(&closing)?;
        stream.flush()
    }
}

#[test]
fn a_service_behind_tls_may_change_its_version() {
    let (stack, authority) = (stack(), Authority::new());
    let certificate = authority.issue("server");
    let offered = Arc::new(Mutex::new("h2"));
    let (sink, served) = mpsc::channel();
    let version = Arc::clone(&offered);
    let address = serve_each(move |_, stream| {
        let version = *version.lock().unwrap();
        serve_one(&certificate, version, stream)?;
        let _ = sink.send(version);
        Ok(())
    });
    let ca = authority.file().display().to_string();
    let url = format!("https://localhost:{}", address.port());
    let sidecar = stack.in_front_of(&url, &["--upstream-ca", &ca, LONG_CONNECT]);
    let client = sidecar.bearing(&stack.token());
    let (bearer, host) = (
        format!("Authorization: Bearer {}", stack.token()),
        "Host: a".to_owned(),
    );
    let websocket: Vec<_> = HANDSHAKE.lines().chain([&*bearer]).collect();
    for version in ["h2", "http/1.1", "http/1.1", "h2", "h2", "http/1.1"] {
        *offered.lock().unwrap() = version;
        let post = client.request("POST", "/list").body("{}");
        assert_eq!(client.send(&post).status(), 200, "{version}");
        assert_eq!(served.recv(), Ok(version));
        let first = match version {
            "h2" => [":method: POST", ":scheme: https"],
            _ => ["POST /orders/list HTTP/1.1", &host],
        };
        let explained =
            sidecar.explain(&["--json", "-X", "POST", "/orders/list"], &[&host, &bearer]);
        assert_eq!(service_lines(&explained)[..2], first);
        let explained = sidecar.explain(&["--json", "/orders/chat"], &websocket);
        assert_eq!(service_lines(&explained)[0], "GET /orders/chat HTTP/1.1");
    }
}
