//! The clients: each sends requests until the sidecar has stopped, and accounts for every one.

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use h2::Reason;
use http::{HeaderMap, Request};
use serde_json::{Value, json};
use tests::actors::abuse::Abuse;
use tests::actors::token_forge::Forge;
use tests::services::h2_service::TRAILER;
use tests::wire::clock;
use tests::wire::h2_client::H2Client;
use tests::wire::raw_client::{HANDSHAKE, RawClient};

use super::ledger::{Count, Ledger};
use super::work::{CALL, CUT, Mix, SLOW, Work};

/// Requests of a token before its owner gets another: the cache fills up, and keeps changing.
const REQUESTS_PER_TOKEN: usize = 5;
/// Requests that a client of HTTP/2 sends at a time.
const STREAMS: usize = 8;
/// Messages of a tunnel or a stream.
const MESSAGES: usize = 10;
/// A slow client's bytes at a time, its pause behind them, and its pause before it reads.
const PIECE: usize = 1024;
const PAUSE: Duration = Duration::from_millis(20);
const LONG_PAUSE: Duration = Duration::from_secs(1);
/// Interval between rounds of abuse; each holds its connections until the next.
const ROUND: Duration = Duration::from_secs(2);

/// All clients share it.
pub(crate) struct Soak {
    pub(crate) forge: Forge,
    pub(crate) ledger: Ledger,
    /// True once a sidecar may accept no further connection.
    pub(crate) stopping: AtomicBool,
}

/// A client, before it connects.
pub(crate) struct Client<'a> {
    pub(crate) soak: &'a Soak,
    pub(crate) address: SocketAddr,
    pub(crate) name: &'static str,
    pub(crate) nth: usize,
    /// Time before each request.
    pub(crate) pause: Duration,
    pub(crate) mix: Mix,
}

/// A count, or the error in place of a whole response.
type End = io::Result<Count>;
/// Carries requests to their ends; returns the connection if it takes more.
type Turn<C> = fn(C, &[Work]) -> (Option<C>, Vec<End>);

impl Client<'_> {
    /// Takes turns of so many requests until the sidecar has stopped.
    fn keep_on<C>(&self, at_once: usize, connect: fn(SocketAddr) -> io::Result<C>, turn: Turn<C>) {
        let (forge, of_client) = (&self.soak.forge, format!("{} {}", self.name, self.nth));
        let (mut user, mut token, mut kept) = (String::new(), String::new(), None);
        for first in (0_usize..).step_by(at_once) {
            thread::sleep(self.pause);
            if first.is_multiple_of(REQUESTS_PER_TOKEN) {
                user = format!("user {first} of {of_client}");
                token = forge.token(clock::now(), &json!({"userId": user}));
            }
            let work = |number| {
                let id = format!("request {number} of {of_client}");
                let work = Work::new(self.mix, (self.nth, number), id, &user, &token);
                match self.mix.len() {
                    1 => work,
                    _ => work.or_bad(forge, at_once > 1),
                }
            };
            let works: Vec<_> = (first..first + at_once).map(work).collect();
            works.iter().for_each(|work| self.count(work, Count::Sent));
            let is_new = kept.is_none();
            let connection = match kept.map_or_else(|| connect(self.address), Ok) {
                Ok(connection) => connection,
                Err(_) => {
                    let rejected = || Err(ErrorKind::ConnectionRefused.into());
                    return works
                        .iter()
                        .for_each(|work| self.end(work, is_new, rejected()));
                }
            };
            let (stays, ends) = turn(connection, &works);
            kept = stays;
            for (work, end) in works.iter().zip(ends) {
                self.end(work, is_new, end);
            }
        }
    }

    fn end(&self, work: &Work, is_new: bool, end: End) {
        let is_stopping = self.soak.stopping.load(Ordering::SeqCst);
        // A sidecar that accepts no connection any more may not have accepted a new one.
        let is_closed = || is_new && TcpStream::connect(self.address).is_err();
        match end {
            Ok(count) => self.count(work, count),
            Err(error)
                if is_stopping && (error.kind() == ErrorKind::ConnectionRefused || is_closed()) =>
            {
                self.count(work, Count::Rejected);
            }
            // It stays without an end.
            Err(error) => println!("{} ({}): lost: {error}", work.id, work.kind),
        }
    }

    fn count(&self, work: &Work, count: Count) {
        self.soak.ledger.count(self.name, work.kind, count);
    }
}

/// Sends requests one after another.
pub(crate) fn over_http1(client: &Client<'_>) {
    client.keep_on(1, RawClient::try_connect, |mut connection, works| {
        let work = &works[0];
        let bytes = work.bytes("");
        let (piece, pauses) = match work.kind {
            SLOW => (PIECE, [PAUSE, LONG_PAUSE]),
            _ => (bytes.len(), [Duration::ZERO; 2]),
        };
        for piece in bytes.chunks(piece) {
            connection.send(piece);
            thread::sleep(pauses[0]);
        }
        thread::sleep(pauses[1]);
        let (stays, end) = match connection.try_response(work.method) {
            Ok(response) => (
                response.header("connection") != ["close"],
                Ok(work.end(response.status(), &response.body)),
            ),
            Err(error) if work.status == CUT && error.kind() != ErrorKind::WouldBlock => {
                (false, Ok(Count::Rejected))
            }
            Err(error) => (false, Err(error)),
        };
        (stays.then_some(connection), vec![end])
    });
}

/// Sends several requests at a time.
pub(crate) fn over_http2(client: &Client<'_>) {
    client.keep_on(STREAMS, H2Client::try_connect, |connection, works| {
        let requests = works.iter();
        let requests = requests.map(|work| (request(&connection, work), work.body.clone()));
        let responses = connection.send_all(requests.collect());
        let ends = works.iter().zip(responses).map(|(work, response)| -> End {
            let response = match response {
                Err(error) if work.status == CUT && error.is_reset() => return Ok(Count::Rejected),
                response => response.map_err(lost)?,
            };
            let (status, body) = (response.head.status().as_u16(), &response.body);
            let lacks_trailers = work.path == CALL && !are_whole(&response.trailers, body.len());
            Ok(match status {
                200 if lacks_trailers => work.end(CUT, body),
                status => work.end(status, body),
            })
        });
        let ends: Vec<End> = ends.collect();
        let stays = ends.iter().all(Result::is_ok);
        (stays.then_some(connection), ends)
    });
}

fn request(connection: &H2Client, work: &Work) -> Request<()> {
    let fields = work.fields.iter();
    let fields: Vec<_> = fields.map(|(name, value)| (*name, &**value)).collect();
    connection.request(work.method, work.path, &fields)
}

/// A server that goes away has not processed the requests that it names so (RFC 9113 §6.8).
fn lost(error: h2::Error) -> io::Error {
    match error.is_go_away() && error.reason() == Some(Reason::NO_ERROR) {
        true => ErrorKind::ConnectionRefused.into(),
        false => io::Error::other(error),
    }
}

/// Returns true for the trailers of a call, in which the service counts its bytes.
fn are_whole(trailers: &HeaderMap, bytes: usize) -> bool {
    let is = |name, value: &str| trailers.get(name).is_some_and(|found| found == value);
    is("grpc-status", "0") && is(TRAILER, &bytes.to_string())
}

/// Opens streams of gRPC, in which each message comes back.
pub(crate) fn streams(client: &Client<'_>) {
    client.keep_on(1, H2Client::try_connect, |connection, works| {
        let end = stream(&connection, &works[0]).map_err(lost);
        (end.is_ok().then_some(connection), vec![end])
    });
}

fn stream(connection: &H2Client, work: &Work) -> Result<Count, h2::Error> {
    let mut stream = connection.try_open(request(connection, work))?;
    let (mut status, mut echoed) = (CUT, Vec::new());
    for message in work.body.chunks(work.body.len() / MESSAGES) {
        stream.write(message)?;
        if status == CUT {
            status = stream.head()?.status().as_u16();
        }
        let due = echoed.len() + message.len();
        while echoed.len() < due {
            let Some(part) = stream.read()? else {
                return Ok(work.end(status, &echoed));
            };
            echoed.extend_from_slice(&part);
        }
        thread::sleep(PAUSE);
    }
    stream.finish()?;
    let is_at_end = stream.read()?.is_none();
    let trailers = stream.trailers()?.unwrap_or_default();
    let is_whole = is_at_end && are_whole(&trailers, echoed.len());
    Ok(work.end(if is_whole { status } else { CUT }, &echoed))
}

/// Opens WebSockets, in which each message comes back.
pub(crate) fn tunnels(client: &Client<'_>) {
    client.keep_on(1, RawClient::try_connect, |mut connection, works| {
        let work = &works[0];
        connection.send(&work.bytes(HANDSHAKE));
        let end = connection.try_response("GET").map(|response| {
            let is_whole = response.status() == 101 && chat(&mut connection, work);
            match is_whole {
                true => Count::Served,
                false => work.end(response.status(), &response.body),
            }
        });
        (None, vec![end])
    });
}

/// Returns true if the tunnel carries all messages, and its end.
fn chat(tunnel: &mut RawClient, work: &Work) -> bool {
    let mut is_right = tunnel.bytes(work.reply.len()) == work.reply;
    for number in 0..MESSAGES {
        let message = format!("message {number} of {}", work.id).into_bytes();
        tunnel.send(&message);
        is_right &= tunnel.bytes(message.len()) == message;
    }
    tunnel.finish();
    is_right && tunnel.is_at_end()
}

/// Leaves within a head, a body and a response.
pub(crate) fn leave(client: &Client<'_>) {
    client.keep_on(1, RawClient::try_connect, |mut connection, works| {
        let bytes = works[0].bytes("");
        match works[0].number % 3 {
            0 => connection.send(&bytes[..50]),
            1 => connection.send(&bytes[..bytes.len() / 2]),
            _ => {
                connection.send(&bytes);
                // A sidecar that stops may have closed it.
                let _ = connection.handle().read(&mut [0; 1000]);
            }
        }
        (None, vec![Ok(Count::Left)])
    });
}

/// Leaves streams within their bodies, and with every other turn their connection.
pub(crate) fn leave_streams(client: &Client<'_>) {
    client.keep_on(STREAMS, H2Client::try_connect, |connection, works| {
        let mut stays = works[0].number.is_multiple_of(2 * STREAMS);
        for work in works {
            // Its end resets the stream.
            let stream = connection.try_open(request(&connection, work));
            let written = stream.and_then(|mut stream| stream.write(&work.body[..1000]));
            stays &= written.is_ok();
        }
        let ends = works.iter().map(|_| Ok(Count::Left));
        (stays.then_some(connection), ends.collect())
    });
}

/// Holds connections, permits and memory in every way in turn, with a token and without.
pub(crate) fn hold(soak: &Soak, address: SocketAddr, path: &str) {
    let token = soak.forge.token(clock::now(), &Value::Null);
    let mut last = Vec::new();
    while !soak.stopping.load(Ordering::SeqCst) {
        let round: Vec<_> = ["", &*token]
            .iter()
            .flat_map(|bearer| Abuse::ALL.map(|abuse| abuse.begin(address, path, bearer)))
            .collect();
        // Closes the connections of the previous round.
        drop(std::mem::replace(&mut last, round));
        thread::sleep(ROUND);
    }
}
