//! Bodies that a service leaves unread: before the head of the next request, none of those behind
//! which the connection stays is a request to any parser that is here.

mod connections;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use fastrand::Rng;
use postern_http::framing::unread::may_be_request;
use serde::Deserialize;
use tests::actors::stack::ForgedStack;
use tests::services::careless_service::{CarelessService, Misread};
use tests::services::echo_service::MARK;
use tests::services::socket_server::{Reply, SocketServer, response, serve_each};
use tests::tables::template;
use tests::tables::{self, Verdicts};
use tests::wait;
use tests::wait::TIMEOUT;
use tests::wire::metrics;
use tests::wire::raw_client::RawClient;

use super::real_servers::{Echo, LANGUAGES, RealServer};

const NEXT: &[u8] = b"GET /orders/next HTTP/1.1\r\nHost: a\r\n\r\n";
const GENERATED: usize = 120;
/// Parts of the lines of requests, for one parser or another, with a bar between them.
const PIECES: &[u8] =
    b"GET|POST|DE|get|/smuggled|*|x|a:/|http://a/|?=| |\t|\r\n|\n|\r|\x1c|\xa0|\0|\
                        HTTP/1.1|RTSP/1.0|{\"a\":|}|:|X-Current-User: {}|\r\n\r\n";

/// `unread_bodies.toml`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    row: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// Each character is one byte.
    body: String,
    /// True if the connection stays.
    kept: bool,
    /// The parser that takes it for a request.
    to: Option<String>,
    why: String,
}

impl Row {
    fn bytes(&self) -> Vec<u8> {
        template::fill_bytes(&self.body, |_| None)
    }
}

fn rows() -> Vec<Row> {
    tables::load::<Table>("unread_bodies.toml").row
}

#[test]
fn a_connection_stays_behind_bodies_that_are_no_requests() {
    let mut verdicts = Verdicts::default();
    for row in rows() {
        let differs = may_be_request(&row.bytes()) == row.kept;
        verdicts.row(&row.why, differs.then(|| format!("kept: {}", row.kept)));
    }
    verdicts.conclude();
}

/// Returns the first request that a server finds in `body` and the next head, and that is not the next
/// request; it may be silent for so long.
fn smuggled(server: &RealServer, body: &[u8], timeout: Duration) -> Option<String> {
    let read = server.read(&[body, NEXT].concat(), timeout);
    let smuggled = read.into_iter().find(|Echo { method, path, .. }| {
        let is_method = !method.is_empty() && method.bytes().all(|it| it.is_ascii_alphabetic());
        *path != "/orders/next" || (is_method && *method != "GET" && method.len() < 64)
    })?;
    Some(format!("{} {}", smuggled.method, smuggled.path))
}

/// Returns the bodies of the table, of the corpus and some made of pieces, behind which a connection
/// stays.
fn kept_bodies() -> Vec<Vec<u8>> {
    let mut bodies: Vec<_> = rows().iter().map(Row::bytes).collect();
    bodies.extend(super::raw_requests::client_bytes("a.b.c"));
    let mut random = Rng::with_seed(35);
    let all: Vec<_> = PIECES.split(|byte| *byte == b'|').collect();
    let mut made = 0;
    while made < GENERATED {
        let pieces = (0..random.usize(1..7)).map(|_| all[random.usize(..all.len())]);
        let body = pieces.collect::<Vec<_>>().concat();
        made += usize::from(!may_be_request(&body));
        bodies.push(body);
    }
    bodies.retain(|body| !may_be_request(body));
    bodies
}

#[test]
fn no_parser_takes_such_a_body_for_a_request() {
    let bodies = kept_bodies();
    std::thread::scope(|scope| {
        for language in LANGUAGES {
            let bodies = &bodies;
            scope.spawn(move || {
                let Some(server) = RealServer::start(language) else {
                    return;
                };
                for body in bodies {
                    let smuggled = smuggled(&server, body, Duration::from_secs(1));
                    assert_eq!(smuggled, None, "{language}: {}", body.escape_ascii());
                }
                for row in rows()
                    .iter()
                    .filter(|row| row.to.as_deref() == Some(language))
                {
                    let smuggled = smuggled(&server, &row.bytes(), TIMEOUT);
                    assert!(smuggled.is_some(), "{language}: {}", row.why);
                }
            });
        }
    });
}

/// CL.0 request smuggling: the body of one request is another one, with a user of the client's own.
#[test]
fn a_body_that_stays_unread_never_becomes_a_request() {
    let (stack, service) = (
        ForgedStack::start(),
        CarelessService::start(Misread::Closes),
    );
    let sidecar = stack.in_front_of(&service.url(), &["--public-path", "/public/**"]);
    let smuggled =
        b"GET /orders/smuggled HTTP/1.1\r\nHost: a\r\nX-Current-User: {\"id\":\"root\"}\r\n\r\n";
    let mut bodies: Vec<_> = rows().iter().map(Row::bytes).collect();
    bodies.push(smuggled.to_vec());
    let bearer = format!("Authorization: Bearer {}\r\n", stack.token());
    for (method, path, credentials) in [("POST", "list", &*bearer), ("GET", "public/x", "")] {
        for body in &bodies {
            let length = body.len();
            let chunked = [format!("{length:x}\r\n").as_bytes(), body, b"\r\n0\r\n\r\n"].concat();
            for (framing, body) in [
                (format!("Content-Length: {length}"), body),
                ("Transfer-Encoding: chunked".to_owned(), &chunked),
            ] {
                if length == 0 {
                    continue;
                }
                let head = format!(
                    "{method} /orders/{path} HTTP/1.1\r\nHost: a\r\n{credentials}{framing}\r\n\r\n"
                );
                let mut client = RawClient::connect(sidecar.address());
                client.send(&[head.as_bytes(), body].concat());
                // Behind a body that was no request, it may be 400: the service is at fault.
                client.response(method);
                client.send(&stack.head("GET", "/orders/next", ""));
                client.response("GET");
            }
        }
    }
    let heads = service.heads();
    let forged = heads
        .iter()
        .filter(|head| head.lines().next().unwrap_or_default().contains("smuggled"));
    assert_eq!(forged.collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(
        heads
            .iter()
            .any(|head| head.contains("GET /orders/next HTTP/1.1"))
    );
}

#[test]
fn a_short_body_without_a_request_leaves_the_connection_open() {
    let service = SocketServer::start(|_| {
        Reply::Bytes(response("200 OK", &[&format!("{MARK}: 1")], b"fine"))
    });
    let stack = ForgedStack::before(&format!("http://{}", service.address()), &[]);
    let client = stack.sidecar.bearing(&stack.token());
    let post = |body: &str| {
        let request = client.request("POST", "/list").body(body);
        assert_eq!(client.send(&request).status(), 200);
        let (made, _) = service.connections();
        made
    };
    let first = post("{\"a\":1}");
    assert_eq!(post("a=1&b=2"), first);
    assert_eq!(post(&format!("{{{}}}", "x".repeat(16_000))), first);
    // Behind each of these it closes.
    for (index, body) in [
        "POST /x HTTP/1.1\r\n\r\n",
        "DE",
        &format!("{{{}}}", "x".repeat(17_000)),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(post(body), first + index);
    }
    assert_eq!(post("{}"), first + 3);
}
