//! The bytes of one side of an exchange, in its version of HTTP.

use std::ops::Range;

use super::exchange::{Exchange, Framing, Piece, Side, Version, filled};
use crate::wire::hpack::put_field;

/// The preface of HTTP/2, with windows in which every exchange has room.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const WIDE_STREAMS: [u8; 6] = [0, 4, 0x3f, 0xff, 0xff, 0xff];
/// Without this a further request would share the connection, and be cut with it.
const ONE_STREAM: [u8; 6] = [0, 3, 0, 0, 0, 1];
const WIDE_CONNECTION: [u8; 4] = [0x3f, 0, 0, 0];

/// The length of data within which one byte is like the next.
const LONG: usize = 200;

/// Types of frames.
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
pub(super) const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

pub(super) const CANCEL: u32 = 8;
pub(super) const NOT_PROCESSED: u32 = 7;

/// Bytes that are sent once so much of the other message has arrived.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) bytes: Vec<u8>,
    pub(super) need: Need,
}

/// The part of a message that has arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) heads: usize,
    pub(super) data: usize,
    pub(super) end: bool,
}

/// The state behind the last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Stay,
    Close,
    Reset,
}

/// One side of an exchange.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) steps: Vec<Step>,
    pub(super) after: After,
    /// The places of the token and of long data, whose bytes are all alike.
    pub(super) alike: Vec<Range<usize>>,
    /// The length up to the end of the first head.
    pub(super) head: usize,
}

impl Script {
    pub(super) fn length(&self) -> usize {
        self.steps.iter().map(|step| step.bytes.len()).sum()
    }
}

/// The request to be made: who makes it, and which one it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) mark: &'a str,
    pub(super) token: &'a str,
}

/// Writes a frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Writes what a side of HTTP/2 sends before its first stream.
pub(super) fn opening(side: Side) -> Vec<u8> {
    let (preface, settings) = match side {
        Side::Client => (PREFACE, WIDE_STREAMS.to_vec()),
        Side::Service => (&[][..], [WIDE_STREAMS, ONE_STREAM].concat()),
    };
    let settings = frame(SETTINGS, 0, 0, &settings);
    let window = frame(WINDOW_UPDATE, 0, 0, &WIDE_CONNECTION);
    [preface, &settings, &window].concat()
}

/// Writes one side of an exchange, in HTTP/2 on this stream.
pub(super) fn script(exchange: &Exchange, side: Side, names: Names<'_>, stream: u32) -> Script {
    let writer = Writer {
        exchange,
        side,
        names,
        stream,
        version: match side {
            Side::Client => exchange.client,
            Side::Service => exchange.service,
        },
    };
    writer.script()
}

struct Writer<'a> {
    exchange: &'a Exchange,
    side: Side,
    names: Names<'a>,
    stream: u32,
    version: Version,
}

impl Writer<'_> {
    fn script(&self) -> Script {
        let mut steps: Vec<Step> = Vec::new();
        let mut after = After::Stay;
        let mut framing = Framing::None;
        let own: Vec<_> = self.exchange.pieces(self.side).collect();
        let mut number = 0;
        for (at, (side, piece)) in self.exchange.story.iter().enumerate() {
            if *side != self.side {
                continue;
            }
            number += 1;
            if let Piece::Head {
                framing: of_body, ..
            } = piece
            {
                framing = *of_body;
            }
            // An end of its own, or of the connection, stands behind the data.
            let is_last = own[number..]
                .iter()
                .all(|piece| matches!(piece, Piece::Close | Piece::GoAway));
            match piece {
                Piece::Close => after = After::Close,
                Piece::Reset(_) if self.version != Version::Http2 => after = After::Reset,
                _ => {}
            }
            let bytes = match self.version {
                Version::Http2 => self.frames(piece, is_last),
                _ => self.text(piece, framing, is_last),
            };
            if !bytes.is_empty() {
                steps.push(Step {
                    bytes,
                    need: self.need(at),
                });
            }
        }
        if framing == Framing::UntilClose && self.version != Version::Http2 && after == After::Stay
        {
            after = After::Close;
        }
        let head = steps.first().map_or(0, |step| step.bytes.len());
        let first = steps.first().map(|step| &*step.bytes).unwrap_or_default();
        let mut alike = vec![self.token_in(first)];
        let mut begin = 0;
        for step in &steps {
            let length = step.bytes.len();
            if begin > 0 && length > LONG {
                alike.push(begin + LONG / 2..begin + length - LONG / 2);
            }
            begin += length;
        }
        Script {
            steps,
            after,
            alike,
            head,
        }
    }

    /// Returns what has to be here of the other message before the piece at this place of the story.
    fn need(&self, at: usize) -> Need {
        let other = |(side, _): &&(Side, Piece)| *side != self.side;
        let before: Vec<_> = self.exchange.story[..at].iter().filter(other).collect();
        let all = self.exchange.story.iter().filter(other).count();
        let heads = before.iter().filter(|(_, piece)| match piece {
            Piece::Head { line, .. } => self.arrives(line),
            _ => false,
        });
        let data = before.iter().map(|(_, piece)| match piece {
            Piece::Data(text) => filled(text, self.names.mark).len(),
            _ => 0,
        });
        let is_cut = matches!(before.last(), Some((_, Piece::Reset(_))));
        Need {
            heads: heads.count(),
            data: data.sum(),
            end: before.len() == all && !is_cut && !self.has_no_end(),
        }
    }

    /// Returns true if the other message has no end before the connection's.
    fn has_no_end(&self) -> bool {
        match self.side {
            Side::Client => self.exchange.opens_tunnel(),
            Side::Service => self.exchange.requests_tunnel(),
        }
    }

    /// Returns false for a head that the other side does not get: HTTP/1.0 has no interim responses.
    fn arrives(&self, line: &str) -> bool {
        let is_interim = line.starts_with('1') && line != "101";
        !(is_interim && self.exchange.client == Version::Http10)
    }

    fn text(&self, piece: &Piece, framing: Framing, is_last: bool) -> Vec<u8> {
        let is_chunked = framing == Framing::Chunks;
        let last_chunk = if is_chunked && is_last {
            "0\r\n\r\n"
        } else {
            ""
        };
        let text = match piece {
            Piece::Head { line, fields, .. } => self.head(line, framing, fields) + last_chunk,
            Piece::Data(text) => {
                let data = filled(text, self.names.mark);
                match is_chunked {
                    true => format!("{:x}\r\n{data}\r\n{last_chunk}", data.len()),
                    false => data,
                }
            }
            Piece::End if is_chunked => "0\r\n\r\n".to_owned(),
            Piece::Trailers(fields) if is_chunked => format!("0\r\n{}\r\n", lines(fields)),
            _ => String::new(),
        };
        text.into_bytes()
    }

    fn head(&self, line: &str, framing: Framing, fields: &[String]) -> String {
        let Names { mark, token } = self.names;
        let is_request = self.side == Side::Client;
        let version = match self.version {
            Version::Http10 => "1.0",
            _ => "1.1",
        };
        let mut head = match is_request {
            true => format!(
                "{line} /c/{mark} HTTP/{version}\r\nHost: a\r\nAuthorization: Bearer {token}\r\n{}",
                lines(&self.exchange.fields)
            ),
            false => format!("HTTP/{version} {line} Some\r\nX-Mark: {mark}\r\n"),
        };
        head += &lines(fields);
        head += &match framing {
            Framing::Length => format!("Content-Length: {}\r\n", self.length()),
            Framing::Chunks => "Transfer-Encoding: chunked\r\n".to_owned(),
            _ => String::new(),
        };
        head + "\r\n"
    }

    fn length(&self) -> usize {
        self.exchange.data(self.side, self.names.mark).len()
    }

    fn frames(&self, piece: &Piece, is_last: bool) -> Vec<u8> {
        let end = if is_last { END_STREAM } else { 0 };
        let block = |fields: Vec<(String, String)>| {
            let mut block = Vec::new();
            for (name, value) in fields {
                put_field(&mut block, &name.to_lowercase(), &value);
            }
            block
        };
        match piece {
            Piece::Head {
                line,
                framing,
                fields,
            } => {
                let is_interim = line.starts_with('1');
                let end = if is_interim { 0 } else { end };
                let block = block(self.fields(line, *framing, fields));
                frame(HEADERS, END_HEADERS | end, self.stream, &block)
            }
            Piece::Data(text) => {
                let data = filled(text, self.names.mark);
                let parts: Vec<_> = data.as_bytes().chunks(16_384).collect();
                let last = parts.len() - 1;
                let frames = parts.iter().enumerate().map(|(at, part)| {
                    let end = if at == last { end } else { 0 };
                    frame(DATA, end, self.stream, part)
                });
                frames.collect::<Vec<_>>().concat()
            }
            Piece::End => frame(DATA, END_STREAM, self.stream, &[]),
            Piece::Trailers(fields) => {
                let fields = fields.iter().filter_map(|field| split(field));
                let block = block(fields.collect());
                frame(HEADERS, END_HEADERS | END_STREAM, self.stream, &block)
            }
            Piece::Reset(code) => frame(RST_STREAM, 0, self.stream, &code.to_be_bytes()),
            Piece::GoAway => {
                let payload = [self.stream.to_be_bytes(), [0; 4]].concat();
                frame(GOAWAY, 0, 0, &payload)
            }
            Piece::Close => Vec::new(),
        }
    }

    fn fields(&self, line: &str, framing: Framing, fields: &[String]) -> Vec<(String, String)> {
        let owned = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let Names { mark, token } = self.names;
        let mut all = match self.side {
            Side::Client => vec![
                owned(":method", line),
                owned(":scheme", "http"),
                owned(":path", &format!("/c/{mark}")),
                owned(":authority", "a"),
                owned("authorization", &format!("Bearer {token}")),
            ],
            Side::Service => vec![owned(":status", line), owned("x-mark", mark)],
        };
        let of_request = self
            .exchange
            .fields
            .iter()
            .filter(|_| self.side == Side::Client);
        let own = of_request.chain(fields).filter_map(|field| split(field));
        all.extend(own.filter(|(name, _)| !name.eq_ignore_ascii_case("connection")));
        if framing == Framing::Length {
            all.push(owned("content-length", &self.length().to_string()));
        }
        all
    }

    fn token_in(&self, head: &[u8]) -> Range<usize> {
        let token = self.names.token.as_bytes();
        match head
            .windows(token.len().max(1))
            .position(|part| part == token)
        {
            Some(at) => at..at + token.len(),
            None => 0..0,
        }
    }
}

fn lines(fields: &[String]) -> String {
    fields.iter().map(|field| format!("{field}\r\n")).collect()
}

fn split(field: &str) -> Option<(String, String)> {
    let (name, value) = field.split_once(": ")?;
    Some((name.to_owned(), value.to_owned()))
}
