//! The cases: kept rows, and changes of them.

use fastrand::Rng;
use serde::Deserialize;
use tests::tables;
use tests::template;

const TOKEN: &str = "{{token}}";
/// The last request of each case, so that the sidecar closes the connection.
const LAST: &[u8] = b"GET /orders/public/last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
/// The response to a request without one in the case.
const USUAL: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";

/// `raw_requests.toml`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    row: Vec<Row>,
}

/// One case. Each character is one byte, so none is beyond `\u00ff`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The bytes of the client, in segments.
    client: Vec<String>,
    /// The responses of the service, in order.
    #[serde(default)]
    service: Vec<ReplyRow>,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyRow {
    parts: Vec<String>,
    /// True if the connection closes behind it.
    #[serde(default)]
    close: bool,
    /// True if it is sent before the body of the request is read.
    #[serde(default)]
    before_body: bool,
}

/// The bytes of a client, and the response of the service.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) client: Vec<Vec<u8>>,
    pub(super) service: Vec<Reply>,
}

/// One response of the service, in parts.
#[derive(Clone)]
pub(super) struct Reply {
    pub(super) parts: Vec<Vec<u8>>,
    pub(super) close: bool,
    pub(super) before_body: bool,
}

impl Reply {
    /// Counts the fields that frame a body: lengths and codings.
    fn framing_fields(&self) -> (usize, usize) {
        let text = self.parts.concat();
        let count = |name: &str| {
            let lines = text.split(|&byte| byte == b'\n').map(name_in);
            let is_named = |one: &&[u8]| one.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
            lines.filter(is_named).count()
        };
        (count("content-length"), count("transfer-encoding"))
    }
}

/// Returns the name of a field.
fn name_in(line: &[u8]) -> &[u8] {
    line.split(|&byte| byte == b':').next().unwrap_or_default()
}

impl Default for Reply {
    fn default() -> Self {
        Self {
            parts: vec![USUAL.to_vec()],
            close: false,
            before_body: false,
        }
    }
}

/// The kept cases.
pub(super) struct Corpus {
    pub(super) cases: Vec<Case>,
    token: String,
}

impl Corpus {
    /// Reads the table, with this valid token.
    pub(super) fn load(token: &str) -> Self {
        let table: Table = tables::load("raw_requests.toml");
        let bytes = |text: &String| bytes_of(text, token);
        let reply = |row: &ReplyRow| Reply {
            parts: row.parts.iter().map(bytes).collect(),
            close: row.close,
            before_body: row.before_body,
        };
        let case = |row: &Row| Case {
            name: row.why.clone(),
            client: row
                .client
                .iter()
                .map(bytes)
                .chain([LAST.to_vec()])
                .collect(),
            service: row.service.iter().map(reply).collect(),
        };
        Self {
            cases: table.row.iter().map(case).collect(),
            token: token.to_owned(),
        }
    }

    /// Changes a kept case; the same one for each `seed`.
    pub(super) fn generated(&self, seed: u64) -> Case {
        let mut random = Rng::with_seed(seed);
        let mut case = self.any(&mut random).clone();
        case.name = format!("seed {seed}");
        case.client.pop();
        if random.bool() {
            case.service.clone_from(&self.any(&mut random).service);
        }
        for _ in 0..random.usize(1..=4) {
            match random.u8(0..20) {
                0..9 => change(
                    any_of(&mut case.client, &mut random),
                    &self.request_lines(),
                    &mut random,
                ),
                9..16 if !case.service.is_empty() => {
                    let reply = random.usize(..case.service.len());
                    let parts = &mut case.service[reply].parts;
                    change(any_of(parts, &mut random), RESPONSE_LINES, &mut random);
                }
                16 => {
                    let mut more = self.any(&mut random).clone();
                    more.client.pop();
                    case.client.extend(more.client);
                    case.service.extend(more.service);
                }
                17 => cut(&mut case.client, &mut random),
                18 if !case.service.is_empty() => {
                    let reply = random.usize(..case.service.len());
                    cut(&mut case.service[reply].parts, &mut random);
                }
                _ if !case.service.is_empty() => {
                    let reply = random.usize(..case.service.len());
                    let reply = &mut case.service[reply];
                    match random.bool() {
                        true => reply.close = !reply.close,
                        false => reply.before_body = !reply.before_body,
                    }
                }
                _ => {}
            }
        }
        case.client.push(LAST.to_vec());
        case
    }

    fn any(&self, random: &mut Rng) -> &Case {
        &self.cases[random.usize(..self.cases.len())]
    }

    fn request_lines(&self) -> Vec<String> {
        let with_token = |line: &&str| line.replace(TOKEN, &self.token);
        REQUEST_LINES.iter().map(with_token).collect()
    }
}

impl Case {
    /// Returns true if a response has what Pingora reads and the exchange does not: a folded field, a
    /// blank before a colon, or any length beside a coding (ADR 0045).
    pub(super) fn has_lenient_response(&self) -> bool {
        let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        let is_lenient = |line: &[u8]| is_blank(line.first()) || is_blank(name_in(line).last());
        self.service.iter().any(|reply| {
            let text = reply.parts.concat();
            let mut lines = text.split(|&byte| byte == b'\n');
            let (lengths, codings) = reply.framing_fields();
            lengths > 0 && codings > 0 || lines.any(is_lenient)
        })
    }

    /// Returns true if it may depend on the connections that each program keeps: the service closes one
    /// without a response behind another response, or sends a second response late. This one
    /// keeps fewer of them (ADR 0045).
    pub(super) fn depends_on_kept_connections(&self) -> bool {
        let is_silent = |reply: &Reply| reply.close && reply.parts.concat().is_empty();
        let begins_response = |part: &&Vec<u8>| part.starts_with(b"HTTP/1.1 2");
        let is_late = |reply: &Reply| reply.parts.iter().filter(begins_response).count() > 1;
        let mut replies = self.service.iter();
        let closes_later =
            replies.by_ref().any(|reply| !is_silent(reply)) && replies.any(is_silent);
        closes_later || self.service.iter().any(is_late)
    }

    /// Returns the case as a row of the table.
    pub(super) fn as_row(&self, token: &str) -> String {
        let texts = |parts: &[Vec<u8>]| {
            let texts: Vec<_> = parts.iter().map(|part| text_of(part, token)).collect();
            texts.join(", ")
        };
        let client = self
            .client
            .split_last()
            .map_or(&[][..], |(_, client)| client);
        let reply = |reply: &Reply| {
            let close = if reply.close { ", close = true" } else { "" };
            let before_body = if reply.before_body {
                ", before_body = true"
            } else {
                ""
            };
            format!(
                "{{ parts = [{}]{close}{before_body} }}",
                texts(&reply.parts)
            )
        };
        let service: Vec<_> = self.service.iter().map(reply).collect();
        format!(
            "  {{ client = [{}], service = [{}], why = \"\" }},",
            texts(client),
            service.join(", ")
        )
    }
}

fn bytes_of(text: &str, token: &str) -> Vec<u8> {
    let filled = template::fill(text, |name| (name == "token").then(|| token.into()));
    let filled = String::from_utf8(filled).unwrap();
    filled
        .chars()
        .map(|byte| u8::try_from(byte).unwrap())
        .collect()
}

fn text_of(bytes: &[u8], token: &str) -> String {
    let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
    let text = text.replace(token, TOKEN);
    let escaped = |byte: char| match byte {
        '\r' => "\\r".to_owned(),
        '\n' => "\\n".to_owned(),
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        ' '..='~' => byte.to_string(),
        _ => format!("\\u{:04x}", u32::from(byte)),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

fn any_of<'p>(parts: &'p mut [Vec<u8>], random: &mut Rng) -> &'p mut Vec<u8> {
    let index = random.usize(..parts.len());
    &mut parts[index]
}

/// Cuts one part in two.
fn cut(parts: &mut Vec<Vec<u8>>, random: &mut Rng) {
    let index = random.usize(..parts.len());
    let at = random.usize(..=parts[index].len());
    let rest = parts[index].split_off(at);
    parts.insert(index + 1, rest);
}

/// Bytes that some parsers take for an end, a blank or a sign.
const ODD_BYTES: &[u8] = b"\0\t\n\r\x0b\x0c \"#%+,-./:;=?\\_{|}\x7f\x80\xa0\xff019afAZ";

const REQUEST_LINES: &[&str] = &[
    "Authorization: Bearer {{token}}",
    "Authorization: Bearer a.b.c",
    "Authorization: Basic YTpi",
    "Host: b",
    "Host:",
    "Content-Length: 0",
    "Content-Length: 3",
    "Content-Length: 03",
    "Content-Length: 3, 3",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: Chunked ",
    "Transfer-Encoding: identity",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: Keep-Alive, X-Hop",
    "Connection:",
    "Keep-Alive: timeout=5",
    "Proxy-Connection: keep-alive",
    "TE: trailers",
    "Trailer: X-End",
    "Upgrade: websocket",
    "Upgrade: h2c",
    "Expect: 100-continue",
    "Expect: something",
    "Accept: text/event-stream",
    "Accept-Encoding: gzip",
    "Range: bytes=0-1",
    "X-Current-User: {}",
    "X_Current_User: {}",
    "X-Hop: 1",
    "X-Empty:",
    "X-Blanks: \t a \t ",
    " folded",
    "X-No-Colon",
    "X-Blank : 1",
    "X-Octets: \u{e4}\u{ff}",
    "Cookie: a=b; c=d",
    "Cookie: e=f",
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "X-Request-Id: id-1",
    "Origin: https://app.example",
    "X-Forwarded-For: 203.0.113.7",
    "",
];

const RESPONSE_LINES: &[&str] = &[
    "Content-Length: 0",
    "Content-Length: 2",
    "Content-Length: 02",
    "Content-Length: 2, 2",
    "Content-Length: 2, 3",
    "Content-Length: -2",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: identity",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: X-Hop",
    "Connection: Content-Length",
    "Keep-Alive: timeout=5",
    "Proxy-Connection: close",
    "Content-Type: text/event-stream",
    "Content-Type: text/plain",
    "Date: Thu, 01 Jan 1970 00:00:00 GMT",
    "Server: s",
    "Set-Cookie: a=b",
    "set-cookie: c=d",
    "Trailer: X-End",
    "Upgrade: h2c",
    "X-Hop: 1",
    "X-Empty:",
    "X-Octets: \u{e4}\u{ff}",
    "X-Blank : 1",
    "X-No-Colon",
    " folded",
    "HTTP/1.1 100 Continue\r\n",
    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n",
    "",
];

/// Changes a line, a byte or a number.
fn change(bytes: &mut Vec<u8>, lines: &[impl AsRef<str>], random: &mut Rng) {
    let ends: Vec<_> = bytes
        .windows(2)
        .enumerate()
        .filter(|(_, end)| end == b"\r\n")
        .collect();
    let ends: Vec<_> = ends.into_iter().map(|(at, _)| at + 2).collect();
    let line_start = ends.get(random.usize(..=ends.len())).copied().unwrap_or(0);
    let line_end = ends
        .iter()
        .copied()
        .find(|end| *end > line_start)
        .unwrap_or(bytes.len());
    let at = random.usize(..=bytes.len());
    let odd = ODD_BYTES[random.usize(..ODD_BYTES.len())];
    match random.u8(0..12) {
        0..=4 => {
            let line = lines[random.usize(..lines.len())].as_ref();
            let line = line.chars().map(|byte| byte as u8).chain(*b"\r\n");
            bytes.splice(line_start..line_start, line);
        }
        5 => drop(bytes.drain(line_start..line_end)),
        6 => {
            let line = bytes[line_start..line_end].to_vec();
            bytes.splice(line_end..line_end, line);
        }
        7 => bytes.insert(at, odd),
        8 if at < bytes.len() => bytes[at] = odd,
        9 if at < bytes.len() => drop(bytes.remove(at)),
        10 => {
            let digits = |byte: &u8| byte.is_ascii_digit();
            let from = at.min(bytes.len());
            if let Some(digit) = bytes[from..].iter_mut().find(|byte| digits(byte)) {
                *digit = if *digit == b'9' { b'0' } else { *digit + 1 };
            }
        }
        _ => {
            if let Some(letter) = bytes.get_mut(at) {
                *letter ^= 0x20;
            }
        }
    }
}
