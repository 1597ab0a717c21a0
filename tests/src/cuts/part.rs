//! One side's part in an exchange: it sends its script step by step, reads the other message, and cuts.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use super::cut::{Cut, Kind};
use super::exchange::Side;
use super::reading::Reader;
use super::script::{CANCEL, NOT_PROCESSED, RST_STREAM, Script, frame};

/// A wait that lasts longer has no end: each setting is a second, and the two of a rest.
const LIMIT: Duration = Duration::from_secs(12);
/// Longer than any setting of the sidecars that meet a silent peer.
const SILENCE: Duration = Duration::from_secs(4);
const BUFFER: usize = 16 * 1024;
/// The length of a step from which on 64 bytes are like one.
const LONG: usize = 4096;

/// The end of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// All was sent, and the other message has ended; the connection is open.
    Done,
    /// The part has cut the connection off.
    Gone,
    /// The sidecar has ended the connection.
    Left,
    /// A wait did not end.
    Late,
}

/// One side of an exchange.
pub(super) struct Part<'a> {
    side: Side,
    script: &'a Script,
    cuts: Vec<Cut>,
    /// Bytes of the next request, which may follow at once.
    pub(super) next: Vec<u8>,
    /// Number of bytes of `next` that were sent.
    pub(super) glued: usize,
    /// For HTTP/2.
    stream: u32,
    /// The data after which a tunnel is over.
    tunnel: Option<usize>,
    pub(super) sent: usize,
    /// The begin of the last write that belongs to the message.
    pub(super) written: Instant,
    step: usize,
    /// True once nothing more is sent.
    is_stopped: bool,
    deadline: Instant,
}

impl<'a> Part<'a> {
    pub(super) fn new(side: Side, script: &'a Script, cuts: &[Cut], stream: u32) -> Self {
        let own = cuts.iter().filter(|cut| cut.direction.side() == side);
        Self {
            side,
            script,
            cuts: own.copied().collect(),
            next: Vec::new(),
            glued: 0,
            stream,
            tunnel: None,
            sent: 0,
            written: Instant::now(),
            step: 0,
            is_stopped: false,
            deadline: Instant::now() + LIMIT,
        }
    }

    /// Ends with so much data in place of a message's end.
    pub(super) fn in_tunnel(mut self, data: usize) -> Self {
        self.tunnel = Some(data);
        self
    }

    /// Plays the part to its end.
    pub(super) async fn play(&mut self, socket: &mut TcpStream, reader: &mut dyn Reader) -> Ending {
        let mut buffer = vec![0; BUFFER];
        loop {
            // They came before the setting that allows none of them.
            for other in reader.take_others() {
                let left = frame(RST_STREAM, 0, other, &NOT_PROCESSED.to_be_bytes());
                if self.is_between_steps() {
                    self.put(socket, &left).await;
                }
            }
            if let Some(ending) = self.send(socket, reader).await {
                return ending;
            }
            if self.is_over(reader) {
                return Ending::Done;
            }
            if self.side == Side::Service && reader.is_left() {
                // Behind a part of a frame nothing else can follow.
                return if self.is_between_steps() {
                    Ending::Done
                } else {
                    Ending::Gone
                };
            }
            let mut room = BUFFER;
            if let Some(cut) = self.pending(false) {
                room = cut.at.saturating_sub(reader.received()).min(BUFFER);
                if room == 0 {
                    if let Some(ending) = self.act(cut, socket).await {
                        return ending;
                    }
                    continue;
                }
            }
            let read = timeout_at(self.deadline, socket.read(&mut buffer[..room]));
            match read.await {
                Err(_) => return Ending::Late,
                Ok(Ok(count)) if count > 0 => {
                    reader.take(&buffer[..count]);
                }
                Ok(end) => {
                    reader.close(end.is_ok());
                    return Ending::Left;
                }
            }
        }
    }

    fn is_over(&self, reader: &dyn Reader) -> bool {
        let has_sent = self.step == self.script.steps.len();
        let reading = reader.reading();
        let has_read = match self.tunnel {
            Some(data) => reading.end.is_some() || reading.data.len() >= data,
            None => reading.end.is_some(),
        };
        match self.side {
            // What waits for more of the response is not sent any more.
            Side::Client => has_read,
            // A service that says nothing more waits until it is left.
            Side::Service => has_read && has_sent && !self.is_stopped,
        }
    }

    fn begin_of_step(&self) -> usize {
        let before = &self.script.steps[..self.step];
        before.iter().map(|step| step.bytes.len()).sum()
    }

    fn is_between_steps(&self) -> bool {
        self.sent == self.begin_of_step()
    }

    /// Returns the next cut of what is sent, or received.
    fn pending(&self, of_sent: bool) -> Option<Cut> {
        let mut cuts = self
            .cuts
            .iter()
            .filter(|cut| cut.direction.is_sent() == of_sent);
        cuts.next().copied()
    }

    /// Sends the steps whose time has come; returns the end of the part, if a cut is one.
    async fn send(&mut self, socket: &mut TcpStream, reader: &dyn Reader) -> Option<Ending> {
        loop {
            if let Some(cut) = self.pending(true).filter(|cut| cut.at == self.sent)
                && !self.is_stopped
                && let Some(ending) = self.act(cut, socket).await
            {
                return Some(ending);
            }
            let script = self.script;
            let step = script.steps.get(self.step)?;
            if self.is_stopped || !reader.reading().has(step.need) {
                return None;
            }
            let begin = self.begin_of_step();
            let rest = &step.bytes[self.sent - begin..];
            let cut = self.pending(true);
            let length = match cut {
                Some(cut) => rest.len().min(cut.at.saturating_sub(self.sent)),
                None => rest.len(),
            };
            let mut bytes = rest[..length].to_vec();
            // At once means within the same segment: between two there is room for another request.
            if let Some(Cut {
                at,
                kind: Kind::Surplus(text, 0),
                ..
            }) = cut
                && at == self.sent + length
            {
                bytes.extend(text.as_bytes());
                self.cuts.retain(|other| Some(*other) != cut);
            }
            self.put(socket, &bytes).await;
            self.sent += length;
            if self.sent == begin + step.bytes.len() {
                self.step += 1;
            }
        }
    }

    /// Writes; the other side may have left meanwhile, which the next read shows.
    async fn put(&mut self, socket: &mut TcpStream, bytes: &[u8]) {
        self.written = Instant::now();
        let write = timeout_at(self.deadline, socket.write_all(bytes));
        if !matches!(write.await, Ok(Ok(()))) {
            self.is_stopped = true;
        }
    }

    /// Carries a cut out; returns the end of the part, if it is one.
    async fn act(&mut self, cut: Cut, socket: &mut TcpStream) -> Option<Ending> {
        self.cuts.retain(|other| *other != cut);
        match cut.kind {
            Kind::Close => return Some(Ending::Gone),
            Kind::Reset => {
                // Dropped, it is reset.
                let _ = socket.set_zero_linger();
                return Some(Ending::Gone);
            }
            Kind::HalfClose => {
                let _ = socket.shutdown().await;
                self.is_stopped = true;
            }
            Kind::Stall if cut.direction.is_sent() => self.is_stopped = true,
            Kind::Stall => {
                sleep(SILENCE).await;
                return Some(Ending::Gone);
            }
            Kind::Split => {
                // A part that only reads has none.
                let step = self.script.steps.get(self.step)?;
                let bytes = step.bytes.clone();
                let (begin, rest) = bytes.split_at(bytes.len().min(LONG));
                for (number, part) in begin.chunks(1).chain(rest.chunks(64)).enumerate() {
                    self.put(socket, part).await;
                    // Behind each, a head would take longer than its timeout beside hundreds of others.
                    if number % 8 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                self.sent += bytes.len();
                self.step += 1;
                // Each further step too.
                if self.step < self.script.steps.len() {
                    self.cuts.push(Cut {
                        at: self.sent,
                        ..cut
                    });
                }
            }
            Kind::Delay(pause) => sleep(Duration::from_millis(pause)).await,
            // Within the request it would be a part of it.
            Kind::Glue(_) if self.step < self.script.steps.len() => {}
            Kind::Glue(count) => {
                self.glued = count.min(self.next.len());
                let glued = self.next[..self.glued].to_vec();
                self.put(socket, &glued).await;
            }
            Kind::Surplus(text, pause) => {
                let written = self.written;
                sleep(Duration::from_millis(pause)).await;
                self.put(socket, text.as_bytes()).await;
                // The rest of the connection began with the response.
                self.written = written;
            }
            Kind::Cancel => {
                let reset = frame(RST_STREAM, 0, self.stream, &CANCEL.to_be_bytes());
                self.put(socket, &reset).await;
                return Some(Ending::Done);
            }
        }
        None
    }
}
