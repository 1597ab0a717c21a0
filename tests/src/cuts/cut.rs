//! The cuts of an exchange: a direction, a byte of it, and what happens there.

use std::fmt;

use super::exchange::{Exchange, Side, Version};
use super::script::{After, Script};

/// One of the four ways of bytes between the sidecar and its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the client.
    Request,
    /// To the service.
    Forwarded,
    /// From the service.
    Response,
    /// To the client.
    Returned,
}

impl Direction {
    /// The side that causes a cut here.
    pub(super) const fn side(self) -> Side {
        match self {
            Self::Request | Self::Returned => Side::Client,
            Self::Forwarded | Self::Response => Side::Service,
        }
    }

    pub(super) const fn is_sent(self) -> bool {
        matches!(self, Self::Request | Self::Response)
    }
}

/// An event at a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Close,
    Reset,
    HalfClose,
    /// No byte more is sent or read.
    Stall,
    /// All further bytes leave one by one, beyond 4 KiB in parts of 64.
    Split,
    /// A pause of so many milliseconds.
    Delay(u64),
    /// So much of the next request follows at once, the rest in its turn.
    Glue(usize),
    /// Bytes that belong to no message, so many milliseconds later.
    Surplus(&'static str, u64),
    /// The stream is reset, the connection stays.
    Cancel,
}

impl Kind {
    /// Returns true if the exchange has to succeed all the same.
    pub(super) const fn is_harmless(self) -> bool {
        matches!(
            self,
            Self::Split | Self::Delay(_) | Self::Glue(_) | Self::Surplus(..)
        )
    }
}

/// A cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) direction: Direction,
    pub(super) at: usize,
    pub(super) kind: Kind,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at byte {} of {:?}",
            self.kind, self.at, self.direction
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Surplus(text, pause) => write!(f, "Surplus({}, {pause} ms)", text.len()),
            kind => write!(f, "{kind:?}"),
        }
    }
}

/// Bytes behind a response.
const SURPLUS_OF_SERVICE: [&str; 3] = [
    "HTTP/1.1 200 OK\r\nX-Mark: surplus!\r\nContent-Length: 8\r\n\r\nsurplus!",
    "surplus!",
    "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsurp",
];
/// Bytes behind a request.
const SURPLUS_OF_CLIENT: [&str; 2] = ["GET surplus! HTTP/1.1\r\n\r\n", "surplus!\r\n\r\n"];

/// The lengths of an exchange that was not cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    pub(super) forwarded: usize,
    pub(super) returned: usize,
}

/// Returns every cut of an exchange.
pub(super) fn all(exchange: &Exchange, scripts: [&Script; 2], lengths: Lengths) -> Vec<Cut> {
    let [client, service] = scripts;
    let mut cuts = Vec::new();
    let mut add = |direction, at, kind| {
        cuts.push(Cut {
            direction,
            at,
            kind,
        })
    };
    for (direction, script, version) in [
        (Direction::Request, client, exchange.client),
        (Direction::Response, service, exchange.service),
    ] {
        let length = script.length();
        for at in positions(length, script) {
            for kind in [Kind::Close, Kind::Reset, Kind::HalfClose] {
                add(direction, at, kind);
            }
            if at < length {
                // Before a stream has begun, a connection of HTTP/2 may be silent for longer.
                let is_timed = version != Version::Http2 || at >= first_head(direction, script);
                if is_timed && !exchange.lasts {
                    add(direction, at, Kind::Stall);
                }
                add(direction, at, Kind::Delay(delay(at)));
            }
        }
        add(direction, 0, Kind::Split);
        if version == Version::Http2 {
            let mut end = 0;
            for step in &script.steps {
                end += step.bytes.len();
                // A reset before any frame of the stream is an error of the connection.
                add(direction, end, Kind::Cancel);
            }
        }
    }
    for at in received(lengths.forwarded, exchange.data_length(Side::Client)) {
        for kind in [
            Kind::Close,
            Kind::Reset,
            Kind::HalfClose,
            Kind::Delay(delay(at)),
        ] {
            add(Direction::Forwarded, at, kind);
        }
        // Behind an early response the rest may stay unread for longer than the sidecar waits.
        let is_early = service.steps.last().is_some_and(|step| !step.need.end);
        if !exchange.lasts && !is_early {
            add(Direction::Forwarded, at, Kind::Stall);
        }
    }
    for at in received(lengths.returned, exchange.data_length(Side::Service)) {
        for kind in [
            Kind::Close,
            Kind::Reset,
            Kind::HalfClose,
            Kind::Delay(delay(at)),
        ] {
            add(Direction::Returned, at, kind);
        }
    }
    if exchange.client == Version::Http11 && !exchange.opens_tunnel() && exchange.status() > 0 {
        for count in [1, 20, usize::MAX] {
            add(Direction::Request, client.length(), Kind::Glue(count));
        }
        add(
            Direction::Returned,
            lengths.returned / 2,
            Kind::Glue(usize::MAX),
        );
        for text in SURPLUS_OF_CLIENT {
            for pause in [0, 2] {
                add(
                    Direction::Request,
                    client.length(),
                    Kind::Surplus(text, pause),
                );
            }
        }
    }
    let ends_by_itself = service.after == After::Stay && !exchange.opens_tunnel();
    if exchange.service == Version::Http11 && ends_by_itself && exchange.is_whole() {
        for text in SURPLUS_OF_SERVICE {
            for pause in [0, 2, 20] {
                add(
                    Direction::Response,
                    service.length(),
                    Kind::Surplus(text, pause),
                );
            }
        }
    }
    cuts
}

/// Returns the place from which on a silence has its own timeout.
fn first_head(direction: Direction, script: &Script) -> usize {
    match direction {
        Direction::Request => script.steps[0].bytes.len() + script.head,
        _ => 0,
    }
}

/// Returns each byte of a message, each 64th of a token, of long data and beyond 4 KiB.
fn positions(length: usize, script: &Script) -> impl Iterator<Item = usize> + use<> {
    let ranges = script.alike.clone();
    (0..=length).filter(move |at| {
        let within = ranges
            .iter()
            .any(|range| range.start < *at && *at < range.end);
        let is_alike = *at > 4096 || within;
        !is_alike || at % 64 == 0 || *at == length
    })
}

/// Returns each byte behind the head of a message that arrives, and some of the head: its sender
/// does not know how much of it was read.
fn received(length: usize, data: usize) -> impl Iterator<Item = usize> {
    let behind = length.saturating_sub(data + 32);
    (0..=length).filter(move |at| {
        let is_in_head = *at < behind && *at > 1;
        let is_in_long_data = *at > behind + 100 && *at + 100 < length;
        match (is_in_head, is_in_long_data) {
            (true, _) => at % 16 == 0,
            (_, true) => at % 256 == 0,
            _ => true,
        }
    })
}

/// A pause from 1 to 100 ms that differs from place to place.
const fn delay(at: usize) -> u64 {
    (at as u64 * 37) % 100 + 1
}
