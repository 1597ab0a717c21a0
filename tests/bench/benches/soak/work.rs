//! The requests, and the response that each deserves.

use serde_json::{Value, json};
use tests::actors::client::Request;
use tests::actors::token_forge::Forge;
use tests::wire::clock;

use super::ledger::Count;
use super::service;

/// One request in so many is bad, and one in so many of a rarer kind.
const BAD: usize = 20;
const OTHER: usize = 40;
/// So long a body has no length in HTTP/1.1.
const UPLOAD: usize = 2 * 1024 * 1024;
/// A gRPC method, on a service that echoes each message.
pub(crate) const CALL: &str = "/orders/pkg.Service/Chat";
/// Sent and read slowly, in HTTP/1.1.
pub(crate) const SLOW: &str = "slow file";
/// The status of a response that breaks off.
pub(crate) const CUT: u16 = 0;

/// A name, a path, the length of a body, and the status that the request deserves.
type Kind = (&'static str, &'static str, usize, u16);
/// The usual kind, and the others.
pub(crate) type Mix = &'static [Kind];

pub(crate) const TO_HTTP_1: Mix = &[
    ("short", "/orders/echo", 0, 200),
    ("upload", "/orders/echo", UPLOAD, 200),
    ("events", service::EVENTS, 0, 200),
    ("no response", "/orders/dies", 0, 502),
    ("half a response", "/orders/half", 0, CUT),
    (SLOW, "/orders/file", 16 * 1024, 200),
];
pub(crate) const TO_HTTP_2: Mix = &[
    ("call", CALL, 1000, 200),
    ("upload", CALL, UPLOAD, 200),
    ("half a response", "/orders/reset", 0, CUT),
];
pub(crate) const TUNNELS: Mix = &[("tunnel", "/orders/websocket", 0, 200)];
pub(crate) const STREAMS: Mix = &[("stream", CALL, 100_000, 200)];
pub(crate) const LEFT: Mix = &[("left", "/orders/file", 200_000, 200)];

/// A request of either version.
pub(crate) struct Work {
    pub(crate) kind: &'static str,
    pub(crate) number: usize,
    pub(crate) id: String,
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) status: u16,
    /// The body of the whole response of the service.
    pub(crate) reply: Vec<u8>,
}

impl Work {
    pub(crate) fn new(
        mix: Mix,
        (client, number): (usize, usize),
        id: String,
        user: &str,
        token: &str,
    ) -> Self {
        // Each client begins with another one.
        let nth = match number % OTHER {
            5 => number / OTHER + client,
            _ => 0,
        };
        let (kind, path, bytes, status) = mix[nth % mix.len()];
        let mut fields = vec![bearer(token), (service::ID, id.clone())];
        match path {
            CALL => fields.push(("content-type", "application/grpc".to_owned())),
            service::EVENTS => fields.push(("accept", "text/event-stream".to_owned())),
            _ => {}
        }
        // No other request has this body.
        let mut body = id.repeat(bytes / id.len() + 1).into_bytes();
        body.truncate(bytes);
        let reply = match path {
            CALL => body.clone(),
            _ => service::reply(path, &id, user, &body),
        };
        let method = if body.is_empty() { "GET" } else { "POST" };
        Self {
            kind,
            number,
            id,
            method,
            path,
            fields,
            body,
            status,
            reply,
        }
    }

    /// Makes each twentieth request a bad one.
    pub(crate) fn or_bad(mut self, forge: &Forge, is_http_2: bool) -> Self {
        if self.number % BAD != BAD - 1 {
            return self;
        }
        let (now, good) = (clock::now(), self.fields[0].clone());
        let forged = |changes| vec![bearer(&forge.token(now, &changes))];
        let with = |name, value: &str| vec![good.clone(), (name, value.to_owned())];
        // The last three are possible in HTTP/1.1 alone.
        let ways = if is_http_2 { 8 } else { 11 };
        let (status, fields) = match self.number / BAD % ways {
            0 => (401, vec![]),
            1 => (401, vec![bearer("not.a.token")]),
            2 => (401, vec![bearer(&"A".repeat(4000))]),
            3 => (401, vec![bearer(&forge.untrusted_token(now, &Value::Null))]),
            4 => (401, forged(json!({"exp": now - 3600}))),
            5 => (401, forged(json!({"username": 1}))),
            6 => (400, with(good.0, &good.1)),
            7 => {
                self.path = "/orders/%2e%2e/admin";
                (400, vec![good])
            }
            8 => (400, with("content-length", "0\r\nContent-Length: 0")),
            9 => (431, with("x-long", &"x".repeat(200_000))),
            _ => (400, with("no colon", "")),
        };
        let (kind, body) = ("bad", Vec::new());
        Self {
            kind,
            fields,
            body,
            status,
            ..self
        }
    }

    /// Returns the bytes in HTTP/1.1, with more header lines.
    pub(crate) fn bytes(&self, lines: &str) -> Vec<u8> {
        let fields = self.fields.iter();
        let fields = fields.map(|(name, value)| format!("{name}: {value}"));
        let head = Request::new(self.method, self.path);
        let head = head.lines(fields).lines(lines.lines());
        match self.body.len() {
            0 => head.bytes("bench"),
            UPLOAD.. => {
                let head = head.line("Transfer-Encoding: chunked").bytes("bench");
                let size = format!("{:x}\r\n", self.body.len());
                [&*head, size.as_bytes(), &self.body, b"\r\n0\r\n\r\n"].concat()
            }
            _ => head.body(&*self.body).bytes("bench"),
        }
    }

    /// Returns the end of this request with a response; prints a wrong one.
    pub(crate) fn end(&self, status: u16, body: &[u8]) -> Count {
        match status == self.status {
            true if status != 200 => Count::Rejected,
            true if body == self.reply => Count::Served,
            _ => {
                let begin = String::from_utf8_lossy(&body[..body.len().min(200)]);
                let (id, due, length) = (&self.id, self.status, body.len());
                println!("{id}: {status} instead of {due}, {length} bytes: {begin}");
                Count::Wrong
            }
        }
    }
}

fn bearer(token: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {token}"))
}
