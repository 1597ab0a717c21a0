//! Messages of HTTP/2, of all streams of a connection.

use std::collections::{BTreeMap, BTreeSet};

use super::{End, Head, Reader, Reading};
use crate::cuts::script;
use crate::wire::hpack::{Decoder, Field};

/// A reader of HTTP/2, with the messages of all streams.
#[derive(Debug, Default)]
pub(in crate::cuts) struct Http2Reader {
    /// The stream whose message is the present one.
    pub(in crate::cuts) stream: u32,
    /// Bytes of the preface that are still to come.
    preface: usize,
    buffer: Vec<u8>,
    decoder: Decoder,
    streams: BTreeMap<u32, Reading>,
    resets: BTreeSet<u32>,
    /// Streams that the service does not take.
    ignored: BTreeSet<u32>,
    /// True if only bytes of the stream count as received.
    counts_stream: bool,
    received: usize,
    none: Reading,
    pub(in crate::cuts) has_goaway: bool,
}

impl Http2Reader {
    pub(in crate::cuts) fn for_requests() -> Self {
        Self {
            preface: script::PREFACE.len(),
            counts_stream: true,
            ..Self::default()
        }
    }

    pub(in crate::cuts) fn for_responses() -> Self {
        Self {
            stream: 1,
            ..Self::default()
        }
    }

    /// Makes the message of this stream the present one.
    pub(in crate::cuts) fn turn_to(&mut self, stream: u32) {
        (self.stream, self.received) = (stream, 0);
    }

    /// Returns a stream that has begun after the present one.
    pub(in crate::cuts) fn later_stream(&self) -> Option<u32> {
        self.streams
            .keys()
            .find(|stream| **stream > self.stream)
            .copied()
    }

    fn frame(&mut self) -> Option<()> {
        let [a, b, c, kind, flags, id @ ..] = *self.buffer.first_chunk::<9>()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let id = u32::from_be_bytes(id);
        let payload = self.buffer.get(9..9 + length)?.to_vec();
        self.buffer.drain(..9 + length);
        if self.counts_stream && id == self.stream {
            self.received += 9 + length;
        }
        let is_end = flags & script::END_STREAM != 0;
        match kind {
            script::DATA | script::RST_STREAM if self.ignored.contains(&id) => {}
            script::HEADERS => {
                // All of them, because each changes the table of those that follow.
                let fields = self.decoder.read(&payload);
                if self.ignored.contains(&id) {
                    return Some(());
                }
                let reading = self.streams.entry(id).or_default();
                match fields {
                    Some(fields) => reading.put_head(fields),
                    None => reading.end = Some(End::Malformed("a field block".to_owned())),
                }
                reading.end_if(is_end);
            }
            script::DATA => {
                let reading = self.streams.entry(id).or_default();
                reading.data.extend(payload);
                reading.end_if(is_end);
            }
            script::RST_STREAM => {
                let code = payload
                    .first_chunk()
                    .map_or(0, |code| u32::from_be_bytes(*code));
                self.resets.insert(id);
                let reading = self.streams.entry(id).or_default();
                // Behind the whole message it says only that no more of the other one is wanted.
                reading.end.get_or_insert(End::Reset(code));
            }
            script::GOAWAY => self.has_goaway = true,
            _ => {}
        }
        Some(())
    }
}

impl Reading {
    fn put_head(&mut self, fields: Vec<Field>) {
        let value = |name: &str| {
            let field = fields.iter().find(|(field, _)| field == name);
            field.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let status = value(":status");
        let line = match status.is_empty() {
            true => format!("{} {}", value(":method"), value(":path")),
            false => status.clone(),
        };
        if line == " " {
            self.trailers = fields;
            return;
        }
        let status = status.parse().unwrap_or(0);
        self.heads.push(Head {
            line,
            status,
            fields,
        });
    }

    fn end_if(&mut self, is_end: bool) {
        if is_end {
            self.end.get_or_insert(End::Whole);
        }
    }
}

impl Reader for Http2Reader {
    fn take(&mut self, bytes: &[u8]) {
        if !self.counts_stream {
            self.received += bytes.len();
        }
        let preface = self.preface.min(bytes.len());
        self.preface -= preface;
        self.buffer.extend_from_slice(&bytes[preface..]);
        while self.frame().is_some() {}
    }

    fn close(&mut self, in_order: bool) {
        self.streams.entry(self.stream).or_default();
        for reading in self.streams.values_mut() {
            reading.end.get_or_insert(End::Cut(in_order));
        }
    }

    fn reading(&self) -> &Reading {
        self.streams.get(&self.stream).unwrap_or(&self.none)
    }

    fn received(&self) -> usize {
        self.received
    }

    fn is_left(&self) -> bool {
        self.resets.contains(&self.stream)
    }

    fn take_others(&mut self) -> Vec<u32> {
        if !self.counts_stream {
            return Vec::new();
        }
        let others = self.streams.split_off(&(self.stream + 1));
        self.ignored.extend(others.keys());
        others.into_keys().collect()
    }
}
