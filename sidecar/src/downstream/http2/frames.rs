//! The frames of a connection, below `h2`.

use std::time::{Duration, Instant};

/// Length of a frame's header (RFC 9113 §4.1).
const HEADER_BYTES: usize = 9;
/// Bytes of a payload that are kept: an error code is among them.
const BEGIN_BYTES: usize = 8;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;
/// The error code PROTOCOL_ERROR (RFC 9113 §7).
const PROTOCOL_ERROR: [u8; 4] = [0, 0, 0, 1];

/// A frame, without most of its payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) kind: u8,
    length: usize,
    begin: [u8; BEGIN_BYTES],
}

impl Frame {
    /// Returns true for the end of a stream or of the connection because of a broken framing.
    pub(super) fn reports_breach(&self) -> bool {
        let [a, b, c, d, e, f, g, h] = self.begin;
        match self.kind {
            RST_STREAM => [a, b, c, d] == PROTOCOL_ERROR,
            GOAWAY => [e, f, g, h] == PROTOCOL_ERROR,
            _ => false,
        }
    }

    /// Returns the share of a turn that a frame takes: a head of HPACK takes far more memory than its bytes.
    pub(super) const fn weight(&self) -> usize {
        match self.kind {
            HEADERS | CONTINUATION => 1 + self.length / 32,
            _ => 1,
        }
    }

    fn carries_message(&self) -> bool {
        self.kind == HEADERS || self.kind == CONTINUATION || self.kind == DATA && self.length > 0
    }
}

/// Reader of the frames of one direction, in pieces of any size.
#[derive(Debug)]
pub(super) struct Frames {
    header: [u8; HEADER_BYTES + BEGIN_BYTES],
    /// Bytes of `header` that were read.
    have: usize,
    /// Bytes to skip before the next frame.
    skip: usize,
}

impl Frames {
    /// Begins after `skip` bytes, of the preface or of a payload.
    pub(super) const fn after_bytes(skip: usize) -> Self {
        Self {
            header: [0; HEADER_BYTES + BEGIN_BYTES],
            have: 0,
            skip,
        }
    }

    /// Returns the number of bytes until the next frame begins.
    pub(super) const fn bytes_ahead(&self) -> usize {
        self.skip
    }

    /// Calls `see` with each frame of which enough was read.
    pub(super) fn parse(&mut self, mut bytes: &[u8], mut see: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            // The rest of the previous frame's payload comes first, and is not kept.
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let wanted = self.wanted();
            let free = self.header.get_mut(self.have..wanted).unwrap_or_default();
            let taken = free.len().min(bytes.len());
            let (read, rest) = bytes.split_at(taken);
            if let Some(free) = free.get_mut(..taken) {
                free.copy_from_slice(read);
            }
            self.have += taken;
            bytes = rest;
            // `wanted` again: with the header complete, the beginning of the payload may be wanted.
            if self.have >= HEADER_BYTES && self.have == self.wanted() {
                see(self.take());
            }
        }
    }

    /// Returns the number of bytes of the present frame that are kept.
    fn wanted(&self) -> usize {
        match (self.have >= HEADER_BYTES, self.kind()) {
            (true, RST_STREAM | GOAWAY) => HEADER_BYTES + self.length().min(BEGIN_BYTES),
            _ => HEADER_BYTES,
        }
    }

    const fn kind(&self) -> u8 {
        let [_, _, _, kind, ..] = self.header;
        kind
    }

    fn length(&self) -> usize {
        let [high, middle, low, ..] = self.header;
        usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)
    }

    fn take(&mut self) -> Frame {
        let [_, _, _, _, _, _, _, _, _, begin @ ..] = self.header;
        let frame = Frame {
            kind: self.kind(),
            length: self.length(),
            begin,
        };
        let kept = self.have - HEADER_BYTES;
        // The kept beginning of the payload is no longer ahead.
        *self = Self::after_bytes(frame.length - kept);
        frame
    }
}

/// Frames a second that may carry no part of a message, beside [`IDLE_FRAMES_OF_MESSAGE`] for each part.
const MAX_IDLE_FRAMES: u32 = 1000;
/// Frames that may accompany one part of a message: they open windows, and measure round trips.
const IDLE_FRAMES_OF_MESSAGE: u32 = 4;
const SECOND: Duration = Duration::from_secs(1);

/// The limit of frames that keep a connection busy and carry nothing: PING, SETTINGS, PRIORITY,
/// WINDOW_UPDATE, resets, empty and unknown ones.
#[derive(Debug)]
pub(super) struct Flood {
    second: Instant,
    idle: u32,
}

impl Flood {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            second: now,
            idle: 0,
        }
    }

    /// Records a frame of either side.
    pub(super) fn sent(&mut self, frame: Frame) {
        if frame.carries_message() {
            self.idle = self.idle.saturating_sub(IDLE_FRAMES_OF_MESSAGE);
        }
    }

    /// Records a frame of the client; returns true once there are too many.
    pub(super) fn received(&mut self, frame: Frame) -> bool {
        if frame.carries_message() {
            self.sent(frame);
            return false;
        }
        self.idle += 1;
        if self.idle <= MAX_IDLE_FRAMES {
            return false;
        }
        // The clock is read only here: few connections ever have so many idle frames.
        let now = Instant::now();
        let is_over = now.duration_since(self.second) < SECOND;
        (self.second, self.idle) = (now, 0);
        is_over
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 1], payload].concat()
    }

    fn seen(bytes: &[u8], size: usize) -> Vec<(u8, bool)> {
        let mut frames = Frames::after_bytes(3);
        let mut seen = Vec::new();
        for part in bytes.chunks(size) {
            frames.parse(part, |frame| {
                seen.push((frame.kind, frame.reports_breach()));
            });
        }
        seen
    }

    #[test]
    fn frames_are_found_in_pieces_of_any_size() {
        let breach = [0, 0, 0, 1];
        let goaway = [&[0, 0, 0, 5][..], &breach, b"why it ended"].concat();
        let bytes = [
            b"PRI".to_vec(),
            frame(DATA, &[7; 300]),
            frame(RST_STREAM, &breach),
            frame(4, &[]),
            frame(RST_STREAM, &[0, 0, 0, 8]),
            frame(GOAWAY, &goaway),
            frame(DATA, &breach),
            frame(RST_STREAM, &[0, 0]),
            frame(HEADERS, b"x"),
        ]
        .concat();
        let expected = [
            (DATA, false),
            (RST_STREAM, true),
            (4, false),
            (RST_STREAM, false),
            (GOAWAY, true),
            (DATA, false),
            (RST_STREAM, false),
            (HEADERS, false),
        ];
        for size in [1, 2, 7, 9, 10, 17, 1000] {
            assert_eq!(seen(&bytes, size), expected, "by {size}");
        }
    }

    const fn of(kind: u8, length: usize) -> Frame {
        Frame {
            kind,
            length,
            begin: [0; BEGIN_BYTES],
        }
    }

    #[test]
    fn frames_have_a_limit_unless_a_message_is_beside_them() {
        for kind in [2, 4, 6, 8, 99] {
            let mut flood = Flood::new(Instant::now());
            let ended = (0..=MAX_IDLE_FRAMES).any(|_| flood.received(of(kind, 8)));
            assert!(ended, "{kind}");
        }
        let mut flood = Flood::new(Instant::now());
        assert!((0..=MAX_IDLE_FRAMES).any(|_| flood.received(of(DATA, 0))));
        let mut flood = Flood::new(Instant::now());
        for _ in 0..MAX_IDLE_FRAMES {
            flood.sent(of(DATA, 1));
            assert!((0..4).all(|_| !flood.received(of(6, 8))));
        }
        let begun = Instant::now().checked_sub(2 * SECOND).unwrap();
        let mut slow = Flood::new(begun);
        assert!((0..=MAX_IDLE_FRAMES).all(|_| !slow.received(of(6, 8))));
    }
}
