//! Bodies that a service leaves unread: before the head of the next request, none of those behind
//! which the connection stays is a request to any parser that is here.

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

const LEFT_BODY: &str = "postern_sidecar_upstream_left_body";
const OF_CLIENT: [&str; 2] = ["--public-path", "/**"];

/// Returns status and body of a response without a token; the body is the method that was read.
fn send(client: &mut RawClient, method: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head =
        format!("{method} /orders/x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    client.send(format!("{head}{body}").as_bytes());
    let response = client.response(method);
    (response.status(), response.text())
}

#[test]
fn an_unread_body_spoils_no_request_of_another_client() {
    let stack = ForgedStack::start();
    for misread in [
        Misread::Closes,
        Misread::Rejects,
        Misread::Leaves,
        Misread::TakesAnyMethod,
    ] {
        let service = CarelessService::start(misread);
        let sidecar = stack.in_front_of(&service.url(), &OF_CLIENT);
        // One that takes any method gives no sign, and would be trusted after some dozens.
        for round in 0..50 {
            let mut clients = [(); 2].map(|()| RawClient::connect(sidecar.address()));
            send(&mut clients[0], "POST", "{\"a\":1}");
            let (status, read) = send(&mut clients[1], "PUT", "");
            assert_eq!((status, &*read), (200, "PUT"), "{misread:?} {round}");
            send(&mut clients[0], "GET", "");
        }
    }
}

#[test]
fn a_request_spoiled_by_an_unread_body_is_sent_again() {
    let stack = ForgedStack::start();
    for (misread, next) in [
        (Misread::Closes, "GET"),
        (Misread::Rejects, "GET"),
        (Misread::Closes, "PUT"),
    ] {
        let service = CarelessService::start(misread);
        let sidecar = stack.in_front_of(&service.url(), &OF_CLIENT);
        let mut client = RawClient::connect(sidecar.address());
        assert_eq!(send(&mut client, "POST", "{\"a\":1}").0, 200);
        let (status, _) = send(&mut client, next, "{\"b\":2}");
        assert_eq!(status, 200, "{misread:?} {next}");
        sidecar.until_logged("its connections end behind bodies method=POST path=/orders/x");
        assert_eq!(metrics::value(sidecar.admin(), LEFT_BODY), Some(1));
        // From then on nothing follows a body.
        for _ in 0..3 {
            assert_eq!(send(&mut client, "POST", "{\"c\":3}").0, 200);
        }
        let heads = service.heads();
        let closing = heads
            .iter()
            .filter(|head| head.contains("onnection: close"));
        assert!(closing.count() >= 3, "{misread:?} {next}: {heads:?}");
    }
}

/// A 400 to a POST may have another cause, and is not sent again.
#[test]
fn a_service_in_doubt_spoils_one_post_and_no_other() {
    let stack = ForgedStack::start();
    for (misread, spoiled) in [
        (Misread::Closes, 400),
        (Misread::Rejects, 400),
        (Misread::Leaves, 502),
    ] {
        let service = CarelessService::start(misread);
        let sidecar = stack.in_front_of(&service.url(), &OF_CLIENT);
        let mut client = RawClient::connect(sidecar.address());
        let mut statuses = Vec::new();
        for _ in 0..6 {
            statuses.push(send(&mut client, "POST", "{\"a\":1}").0);
            if statuses.len() == 2 {
                // The holder of the connection behind the first body has left.
                client = RawClient::connect(sidecar.address());
            }
        }
        assert_eq!(statuses, [200, spoiled, 200, 200, 200, 200], "{misread:?}");
        assert_eq!(metrics::value(sidecar.admin(), LEFT_BODY), Some(0));
    }
}

#[test]
fn behind_a_body_a_connection_is_its_holder_s_alone() {
    let service = SocketServer::start(|request| {
        if request.target().ends_with(b"/silent") {
            return Reply::Silence;
        }
        let status = match request.target().ends_with(b"/x") {
            true => "200 OK",
            false => "400 Bad Request",
        };
        Reply::Bytes(response(status, &[&format!("{MARK}: 1")], b""))
    });
    let stack = ForgedStack::start();
    let sidecar = stack.in_front_of(&format!("http://{}", service.address()), &OF_CLIENT);
    let mut client = RawClient::connect(sidecar.address());
    // Beyond the rest of any connection.
    let rest = || std::thread::sleep(Duration::from_millis(250));
    let made_by = |client: &mut RawClient, method: &str, body: &str| {
        rest();
        let (before, _) = service.connections();
        assert_eq!(send(client, method, body).0, 200);
        service.connections().0 - before
    };
    let mut other = RawClient::connect(sidecar.address());
    assert_eq!(made_by(&mut client, "POST", "{}"), 1);
    assert_eq!(made_by(&mut other, "GET", ""), 1);
    assert_eq!(made_by(&mut client, "POST", "{}"), 0);
    assert_eq!(made_by(&mut client, "GET", ""), 0);
    assert_eq!(made_by(&mut other, "POST", "{}"), 0);
    assert_eq!(made_by(&mut other, "POST", "{}"), 0);
    let third = &mut RawClient::connect(sidecar.address());
    assert_eq!(made_by(third, "GET", ""), 0, "of the first client");
    // Clients that leave say nothing of bodies.
    for _ in 0..3 {
        assert_eq!(send(&mut client, "POST", "{}").0, 200);
        client.send(b"GET /orders/silent HTTP/1.1\r\nHost: a\r\n\r\n");
        wait::until("the request at the service", || {
            let requests = service.requests();
            requests
                .last()?
                .target()
                .ends_with(b"/silent")
                .then_some(())
        });
        client = RawClient::connect(sidecar.address());
    }
    // A response that a new connection gets as well says nothing of bodies.
    client.send(b"GET /orders/other HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response("GET").status(), 400);
    assert_eq!(metrics::value(sidecar.admin(), LEFT_BODY), Some(0));
}

/// Serves one connection: 405 to a PUT once more than the first 64 KiB of its body have come.
fn reject_late(connection: TcpStream, lines: &Sender<String>) -> std::io::Result<()> {
    let mut writer = connection.try_clone()?;
    let mut reader = BufReader::new(connection);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let _ = lines.send(head.lines().next().unwrap_or_default().to_owned());
        let (status, read) = match head.starts_with("PUT") {
            true => ("405 Method Not Allowed", 70_000),
            false => ("200 OK", 2),
        };
        reader.read_exact(&mut vec![0; read])?;
        writer.write_all(&response(status, &[&format!("{MARK}: 1")], b""))?;
        if read > 2 {
            std::io::copy(&mut reader, &mut std::io::sink())?;
        }
    }
}

/// The rest of a request that was sent in part would be a request of its own.
#[test]
fn a_long_body_that_is_rejected_early_is_never_sent_again() {
    let (sender, lines) = channel();
    let address = serve_each(move |_, connection| reject_late(connection, &sender));
    let stack = ForgedStack::start();
    let sidecar = stack.in_front_of(&format!("http://{address}"), &OF_CLIENT);
    let mut client = RawClient::connect(sidecar.address());
    assert_eq!(send(&mut client, "POST", "{}").0, 200);
    let held = vec![b'x'; 64 * 1024];
    let smuggled = b"GET /orders/smuggled HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3000);
    let length = held.len() + smuggled.len();
    let head = format!("PUT /orders/x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    client.send(&[head.as_bytes(), &held].concat());
    let (post, put) = (lines.recv().unwrap(), lines.recv().unwrap());
    assert!(
        post.starts_with("POST ") && put.starts_with("PUT "),
        "{post} {put}"
    );
    client.send(&smuggled);
    assert_eq!(client.response("PUT").status(), 405);
    drop((client, sidecar));
    assert_eq!(lines.try_iter().next(), None, "a request of the body");
}
