//! Recorded exchanges, as `data/cuts` has them: the pieces of both messages, in the order of their story.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::tables;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    exchange: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    /// Versions of the client; HTTP/1.1 and HTTP/2 by default.
    #[serde(default = "usual_versions")]
    clients: Vec<Version>,
    /// Versions of the service; HTTP/1.1 and HTTP/2 by default.
    #[serde(default = "usual_versions")]
    services: Vec<Version>,
    /// Further fields of the request.
    #[serde(default)]
    fields: Vec<String>,
    /// Pieces in their order, one a line.
    story: String,
    /// True for a stream, which may be silent for as long as its token is valid.
    #[serde(default)]
    lasts: bool,
}

/// A version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub(super) enum Version {
    #[serde(rename = "1.0")]
    Http10,
    #[serde(rename = "1.1")]
    Http11,
    #[serde(rename = "2")]
    Http2,
}

fn usual_versions() -> Vec<Version> {
    vec![Version::Http11, Version::Http2]
}

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Service,
}

/// The framing of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length,
    Chunks,
    UntilClose,
}

/// A part of a message.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    /// A method or a status, and its own fields.
    Head {
        line: String,
        framing: Framing,
        fields: Vec<String>,
    },
    Data(String),
    /// The end, apart from the last data.
    End,
    Trailers(Vec<String>),
    /// The end of the stream with this code, or of the connection.
    Reset(u32),
    /// The end of the connection of HTTP/2 behind this stream.
    GoAway,
    /// The end of the connection in order.
    Close,
}

/// An exchange in two versions of HTTP.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) name: String,
    pub(super) client: Version,
    pub(super) service: Version,
    pub(super) fields: Vec<String>,
    pub(super) story: Vec<(Side, Piece)>,
    pub(super) lasts: bool,
}

impl Exchange {
    /// Returns the pieces of one side.
    pub(super) fn pieces(&self, side: Side) -> impl Iterator<Item = &Piece> {
        let own = move |(of, _): &&(Side, Piece)| *of == side;
        self.story.iter().filter(own).map(|(_, piece)| piece)
    }

    /// Returns the data of one side's body.
    pub(super) fn data(&self, side: Side, mark: &str) -> String {
        let data = self.pieces(side).filter_map(|piece| match piece {
            Piece::Data(text) => Some(filled(text, mark)),
            _ => None,
        });
        data.collect()
    }

    /// Returns the length of that data.
    pub(super) fn data_length(&self, side: Side) -> usize {
        self.data(side, "00000000").len()
    }

    pub(super) fn method(&self) -> &str {
        self.heads(Side::Client).next().unwrap_or_default()
    }

    /// Returns the status of the final response; 0 if there is none.
    pub(super) fn status(&self) -> u16 {
        self.heads(Side::Service)
            .last()
            .and_then(|line| line.parse().ok())
            .unwrap_or(0)
    }

    pub(super) fn heads(&self, side: Side) -> impl Iterator<Item = &str> {
        self.pieces(side).filter_map(|piece| match piece {
            Piece::Head { line, .. } => Some(&**line),
            _ => None,
        })
    }

    pub(super) fn opens_tunnel(&self) -> bool {
        self.status() == 101
    }

    /// Returns true if what follows the head of the request is no HTTP, or may be none.
    pub(super) fn requests_tunnel(&self) -> bool {
        self.fields.iter().any(|field| field.starts_with("Upgrade"))
    }

    /// Returns true if the service does not break the exchange off by itself.
    pub(super) fn is_whole(&self) -> bool {
        !self
            .story
            .iter()
            .any(|(_, piece)| matches!(piece, Piece::Reset(_)))
            && self.status() >= 101
    }

    /// Returns true if the request may be carried out twice.
    pub(super) fn may_repeat(&self) -> bool {
        let overrides = |field: &String| field.to_lowercase().contains("method");
        ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"].contains(&self.method())
            && !self.fields.iter().any(overrides)
    }
}

/// Returns a text with the mark in its place, and a part in braces as often as its number says.
pub(super) fn filled(text: &str, mark: &str) -> String {
    let text = text.replace("{m}", mark);
    match text
        .rsplit_once('*')
        .map(|(part, count)| (part, count.parse()))
    {
        Some((part, Ok(count))) => part.repeat(count),
        _ => text,
    }
}

/// Reads all exchanges, in each pair of versions.
pub(super) fn load() -> Vec<Exchange> {
    let files = ["bodies", "heads", "ends", "streams"];
    let rows = files.iter().flat_map(|file| {
        let table: Table = tables::load(&format!("cuts/{file}.toml"));
        table.exchange
    });
    let mut all = Vec::new();
    let mut names = BTreeMap::new();
    for row in rows {
        let named = names.insert(row.name.clone(), ());
        assert!(named.is_none(), "{} stands there twice", row.name);
        for &client in &row.clients {
            for &service in &row.services {
                let story = row.story.trim().lines().map(turn).collect();
                let exchange = Exchange {
                    name: row.name.clone(),
                    client,
                    service,
                    fields: row.fields.clone(),
                    story,
                    lasts: row.lasts,
                };
                if is_possible(&exchange) {
                    all.push(exchange);
                }
            }
        }
    }
    all
}

/// Returns false for a piece that its version does not have.
fn is_possible(exchange: &Exchange) -> bool {
    exchange
        .story
        .iter()
        .all(|(side, piece)| match (side, piece) {
            (Side::Client, Piece::Head { framing, .. }) => {
                *framing != Framing::Chunks || exchange.client != Version::Http10
            }
            (Side::Service, Piece::GoAway) => exchange.service == Version::Http2,
            _ => true,
        })
}

/// Reads `> POST length`, `< 200 chunks; X-A: b`, `> data abc`, `< end`.
fn turn(line: &str) -> (Side, Piece) {
    let (side, piece) = line.split_at(2);
    let side = match side {
        "> " => Side::Client,
        "< " => Side::Service,
        _ => panic!("{line}: neither > nor <"),
    };
    let (word, rest) = piece.split_once(' ').unwrap_or((piece, ""));
    let code = || rest.parse().unwrap_or_else(|_| panic!("{line}: no code"));
    let piece = match word {
        "data" => Piece::Data(rest.to_owned()),
        "end" => Piece::End,
        "trailers" => Piece::Trailers(fields(&rest.replace("{m}", "1"))),
        "reset" => Piece::Reset(code()),
        "goaway" => Piece::GoAway,
        "close" => Piece::Close,
        _ => {
            let (first, more) = piece.split_once("; ").unwrap_or((piece, ""));
            let (line, framing) = first.split_once(' ').unwrap_or((first, ""));
            Piece::Head {
                line: line.to_owned(),
                framing: match framing {
                    "" => Framing::None,
                    "length" => Framing::Length,
                    "chunks" => Framing::Chunks,
                    "until close" => Framing::UntilClose,
                    _ => panic!("{line}: no framing"),
                },
                fields: fields(more),
            }
        }
    };
    (side, piece)
}

fn fields(text: &str) -> Vec<String> {
    let fields = text.split("; ").filter(|field| !field.is_empty());
    fields.map(str::to_owned).collect()
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        })
    }
}
