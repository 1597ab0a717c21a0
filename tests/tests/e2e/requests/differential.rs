//! Requests that grow by mutation, through the sidecar and on to real servers: none of them reads another
//! or a further request than the sidecar has sent.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::Value;
use tests::actors::setting;
use tests::actors::stack::ForgedStack;
use tests::services::socket_server::{response, serve_each};
use tests::tables;
use tests::tables::template::fill_bytes;
use tests::wire::message::Message;

use super::raw_requests::client_bytes;
use super::real_servers::{Echo, RealServer};

/// Tries in `make test`; `make fuzz` goes on for so many seconds.
const TRIES: usize = 100;
const SECONDS: &str = "POSTERN_TEST_HEADS_SECONDS";

/// In place of a token, which no mutation changes.
const TOKEN: &str = "a.b.c";
/// The request by which a server closes its connection.
const LAST: &[u8] = b"GET /orders/public/last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
/// Longer than the timeouts of the sidecar, and than a server takes to respond.
const SILENCE: Duration = Duration::from_secs(4);
const RESPONSE: Duration = Duration::from_millis(300);

/// Bytes that the sidecar sent on one connection to its service, and the requests that they are.
#[derive(Debug, Clone, Default)]
struct Sent {
    bytes: Vec<u8>,
    requests: Vec<Echo>,
}

type Connections = Arc<Mutex<BTreeMap<usize, Sent>>>;

/// A connection whose bytes are noted.
struct Noted {
    stream: TcpStream,
    number: usize,
    connections: Connections,
}

impl Noted {
    fn note(&self, change: impl FnOnce(&mut Sent)) {
        change(
            self.connections
                .lock()
                .unwrap()
                .entry(self.number)
                .or_default(),
        );
    }
}

impl Read for Noted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.note(|sent| sent.bytes.extend_from_slice(&buffer[..count]));
        Ok(count)
    }
}

/// Reads requests and responds to each.
fn serve(noted: Noted) -> io::Result<()> {
    let mut reader = BufReader::new(noted);
    while let Some(head) = Message::read_head(&mut reader)? {
        let target = String::from_utf8_lossy(&head.target()).into_owned();
        let user = head.header("x-current-user").join(",");
        let user: Option<Value> = serde_json::from_str(&user).ok();
        let request = Echo {
            method: head.method(),
            path: target,
            account: user.and_then(|user| Some(user["account"].as_str()?.to_owned())),
        };
        reader.get_ref().note(|sent| sent.requests.push(request));
        head.request_body(&mut reader)?;
        let fine = response("200 OK", &[], b"");
        reader.get_mut().stream.write_all(&fine)?;
    }
    Ok(())
}

/// A sidecar whose service notes what it gets.
struct Front {
    stack: ForgedStack,
    token: String,
    connections: Connections,
}

impl Front {
    fn start() -> Self {
        let connections = Connections::default();
        let noted = Arc::clone(&connections);
        let service = serve_each(move |number, stream| {
            let connections = Arc::clone(&noted);
            serve(Noted {
                stream,
                number,
                connections,
            })
        });
        let flags = [
            "--public-path=/public/**",
            "--forwarded=off",
            "--upstream-reuse-after-body",
            "--request-header-timeout=1s",
            "--request-body-timeout=1s",
            "--upstream-read-timeout=2s",
        ];
        let stack = ForgedStack::before(&format!("http://{service}"), &flags);
        let token = stack.token();
        Self {
            stack,
            token,
            connections,
        }
    }

    /// Sends bytes to the sidecar; returns what it sent on, and the statuses of its responses.
    fn send(&self, bytes: &[u8]) -> (Vec<Sent>, String) {
        let mut stream = TcpStream::connect(self.stack.sidecar.address()).unwrap();
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        let _ = stream.write_all(&[&replaced(bytes, &self.token), LAST].concat());
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        let received = String::from_utf8_lossy(&received).into_owned();
        let statuses = received.split("HTTP/1.1 ").skip(1);
        let statuses = statuses.filter_map(|text| text.get(..3));
        let sent = std::mem::take(&mut *self.connections.lock().unwrap());
        (
            sent.into_values().collect(),
            statuses.collect::<Vec<_>>().join(" "),
        )
    }
}

/// Returns the bytes with the token in its places.
fn replaced(bytes: &[u8], token: &str) -> Vec<u8> {
    let text: String = bytes.iter().copied().map(char::from).collect();
    let text = text.replace(TOKEN, token);
    text.chars()
        .filter_map(|letter| u8::try_from(letter).ok())
        .collect()
}

/// Requests that grow: whatever has a new outcome is changed further.
struct Corpus {
    rows: Vec<Vec<u8>>,
    outcomes: BTreeSet<String>,
    pieces: Vec<Vec<u8>>,
    random: Rng,
}

impl Corpus {
    fn new(seed: u64) -> Self {
        let table: BTreeMap<String, Vec<String>> = tables::load("head_pieces.toml");
        let pieces = table["pieces"]
            .iter()
            .map(|piece| fill_bytes(piece, |_| None));
        Self {
            rows: client_bytes(TOKEN).filter(|row| row != LAST).collect(),
            outcomes: BTreeSet::new(),
            pieces: pieces.collect(),
            random: Rng::with_seed(seed),
        }
    }

    fn next(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        let mut bytes = self.rows[random.usize(..self.rows.len())].clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..=bytes.len());
            let end = (at + random.usize(1..12)).min(bytes.len());
            let part = match random.u8(..8) {
                0 => Vec::new(),
                1 => bytes[at..end].repeat(2),
                2 => vec![random.u8(..)],
                3 => {
                    let other = &self.rows[random.usize(..self.rows.len())];
                    other[random.usize(..=other.len())..].to_vec()
                }
                _ => self.pieces[random.usize(..self.pieces.len())].clone(),
            };
            // A line goes between others, all else anywhere or in place of something.
            let (at, end) = match part.ends_with(b"\r\n") {
                true => [line_begin(&bytes, at); 2].into(),
                false if random.bool() => (at, at),
                false => (at, end),
            };
            bytes.splice(at..end, part);
        }
        bytes.truncate(8192);
        bytes
    }

    fn learn(&mut self, bytes: &[u8], outcome: String) {
        if self.outcomes.insert(outcome) {
            self.rows.push(bytes.to_vec());
        }
    }
}

/// Returns the begin of the line that this place is in.
fn line_begin(bytes: &[u8], at: usize) -> usize {
    let end = bytes[..at].windows(2).rposition(|pair| pair == b"\r\n");
    end.map_or(0, |end| end + 2)
}

/// Returns a request as any server may write it: the escapes of its path read once, without a query, and
/// the method in upper case, in which Hypercorn has all of them.
fn normal(echo: &Echo) -> Echo {
    // A service prints a quote as `\"`; the sidecar forwards no backslash.
    let mut parts = echo.path.split(['?', '"', '#', '\\']);
    let path = parts.next().unwrap_or_default();
    // Some take several slashes at the begin for one, a reading that rules know.
    let slashes = path.len() - path.trim_start_matches('/').len();
    let mut rest = &path[slashes.saturating_sub(1)..];
    let mut read = String::new();
    while let Some(letter) = rest.chars().next() {
        let escaped = rest.get(1..3).filter(|_| letter == '%');
        let byte = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        read.push(byte.map_or(letter, char::from));
        rest = &rest[byte.map_or(letter.len_utf8(), |_| 3)..];
    }
    // Each server has its own way with what is no ASCII.
    read.retain(|letter| letter.is_ascii_graphic());
    Echo {
        method: echo.method.to_uppercase(),
        path: read,
        account: echo.account.clone(),
    }
}

/// Returns the first request that a server has read without one that was sent, in their order.
fn surplus(sent: &[Echo], read: &[Echo]) -> Option<Echo> {
    let mut sent = sent.iter().map(normal);
    let mut is_surplus = |echo: &&Echo| !sent.any(|request| request == normal(echo));
    read.iter().find(|echo| is_surplus(echo)).cloned()
}

/// Tries one stream with all servers; returns what is wrong.
fn try_one<'a>(front: &Front, servers: &'a [RealServer], corpus: &mut Corpus) -> Option<String> {
    let bytes = corpus.next();
    let (connections, mut outcome) = front.send(&bytes);
    for mut sent in connections {
        sent.bytes.extend_from_slice(LAST);
        sent.requests.push(Echo {
            method: "GET".to_owned(),
            path: "/orders/public/last".to_owned(),
            account: None,
        });
        let read = std::thread::scope(|scope| {
            let bytes = &sent.bytes;
            let read = |server: &'a RealServer| scope.spawn(move || server.read(bytes, RESPONSE));
            let running: Vec<_> = servers.iter().map(read).collect();
            let read = running.into_iter().map(|server| server.join().unwrap());
            read.collect::<Vec<_>>()
        });
        for (server, read) in servers.iter().zip(read) {
            outcome += &format!(" {}{}", server.name, read.len());
            if let Some(echo) = surplus(&sent.requests, &read) {
                let (sent, client) = (sent.bytes.escape_ascii(), bytes.escape_ascii());
                let name = server.name;
                return Some(format!("{name} read {echo:?}\n  in {sent}\n  of {client}"));
            }
        }
    }
    corpus.learn(&bytes, outcome);
    None
}

#[test]
fn no_server_reads_another_request_than_the_sidecar_sent() {
    let seconds = setting::number(SECONDS, 0) as u64;
    let until = Instant::now() + Duration::from_secs(seconds);
    let servers = RealServer::start_all();
    let (front, mut corpus) = (Front::start(), Corpus::new(53 + seconds));
    let (mut tries, mut red) = (0, Vec::new());
    while red.len() < 10 && (tries < TRIES || Instant::now() < until) {
        red.extend(try_one(&front, &servers, &mut corpus));
        tries += 1;
    }
    let (outcomes, servers) = (corpus.outcomes.len(), servers.len());
    let summary = format!("{tries} requests, {outcomes} outcomes, {servers} servers");
    let _ = writeln!(io::stderr(), "{summary}");
    assert!(red.is_empty(), "{}", red.join("\n"));
}
