//! Messages of HTTP/1.x, read strictly.

use super::{End, Head, Reader, Reading};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Length(usize),
    ChunkSize,
    Chunk(usize),
    Trailers,
    UntilClose,
    Ended,
}

/// A reader of HTTP/1.x.
#[derive(Debug)]
pub(in crate::cuts) struct Http1Reader {
    /// The method of the request whose response is read; `None` where requests are read.
    method: Option<String>,
    state: State,
    buffer: Vec<u8>,
    reading: Reading,
    received: usize,
}

impl Http1Reader {
    pub(in crate::cuts) fn for_requests() -> Self {
        Self::new(None, Vec::new())
    }

    pub(in crate::cuts) fn for_response(method: &str) -> Self {
        Self::new(Some(method.to_owned()), Vec::new())
    }

    fn new(method: Option<String>, rest: Vec<u8>) -> Self {
        Self {
            method,
            state: State::Head,
            buffer: rest,
            reading: Reading::default(),
            received: 0,
        }
    }

    /// Begins with the next message, whose first bytes may be here.
    pub(in crate::cuts) fn next(&mut self, method: Option<&str>) -> Reading {
        let mut next = Self::new(method.map(str::to_owned), std::mem::take(&mut self.buffer));
        next.received = next.buffer.len();
        next.parse();
        std::mem::replace(self, next).reading
    }

    /// Returns the bytes behind the message.
    pub(in crate::cuts) fn surplus(&self) -> &[u8] {
        &self.buffer
    }

    fn parse(&mut self) {
        while self.reading.end.is_none() && self.step().is_some() {}
    }

    /// Takes one part; `None` if it is not all here.
    fn step(&mut self) -> Option<()> {
        match self.state {
            State::Head => {
                let end = find(&self.buffer, b"\r\n\r\n")? + 4;
                let head: Vec<_> = self.buffer.drain(..end).collect();
                match self.begin_body(&head) {
                    Ok(state) => self.state = state,
                    Err(why) => self.reading.end = Some(End::Malformed(why)),
                }
            }
            State::Length(0) => self.state = State::Ended,
            State::Length(left) => {
                let taken = self.take_data(left)?;
                self.state = State::Length(left - taken);
            }
            State::ChunkSize => {
                let line = self.line()?;
                let Ok(size) = usize::from_str_radix(&line, 16) else {
                    self.reading.end = Some(End::Malformed(format!("a chunk of {line:?}")));
                    return Some(());
                };
                self.state = if size == 0 {
                    State::Trailers
                } else {
                    State::Chunk(size)
                };
            }
            State::Chunk(0) => {
                let line = self.line()?;
                if !line.is_empty() {
                    self.reading.end = Some(End::Malformed("a chunk without an end".to_owned()));
                }
                self.state = State::ChunkSize;
            }
            State::Chunk(left) => {
                let taken = self.take_data(left)?;
                self.state = State::Chunk(left - taken);
            }
            State::Trailers => {
                if self.line()?.is_empty() {
                    self.state = State::Ended;
                }
            }
            State::UntilClose => drop(self.take_data(usize::MAX)?),
            State::Ended => self.reading.end = Some(End::Whole),
        }
        Some(())
    }

    fn line(&mut self) -> Option<String> {
        let end = find(&self.buffer, b"\r\n")?;
        let line: Vec<_> = self.buffer.drain(..end + 2).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    fn take_data(&mut self, most: usize) -> Option<usize> {
        let length = self.buffer.len().min(most);
        self.reading.data.extend(self.buffer.drain(..length));
        (length > 0).then_some(length)
    }

    fn begin_body(&mut self, head: &[u8]) -> Result<State, String> {
        let text = str::from_utf8(head).map_err(|_| "no UTF-8".to_owned())?;
        let mut lines = text.split("\r\n");
        let line = lines.next().unwrap_or_default().to_owned();
        let mut fields = Vec::new();
        for field in lines.filter(|field| !field.is_empty()) {
            let (name, value) = field.split_once(':').ok_or(format!("a field {field:?}"))?;
            fields.push((name.to_lowercase(), value.trim().to_owned()));
        }
        let words: Vec<_> = line.split(' ').collect();
        let status = match (&self.method, &words[..]) {
            (None, [_, path, "HTTP/1.1"]) if path.starts_with('/') => 0,
            (Some(_), ["HTTP/1.0" | "HTTP/1.1", status, ..]) => {
                status.parse().map_err(|_| format!("a status {status}"))?
            }
            _ => return Err(format!("a first line {line:?}")),
        };
        let head = Head {
            line,
            status,
            fields,
        };
        let state = self.state_behind(&head)?;
        self.reading.heads.push(head);
        Ok(state)
    }

    fn state_behind(&self, head: &Head) -> Result<State, String> {
        if head.is_interim() {
            return Ok(State::Head);
        }
        let has_body = match &self.method {
            None => true,
            Some(method) => method != "HEAD" && !matches!(head.status, 204 | 304),
        };
        let (codings, lengths) = (
            head.values("transfer-encoding"),
            head.values("content-length"),
        );
        Ok(match (&codings[..], &lengths[..]) {
            // What follows is the tunnel's.
            _ if head.status == 101 => State::UntilClose,
            _ if self.method.is_none() && !head.values("upgrade").is_empty() => State::UntilClose,
            _ if !has_body => State::Ended,
            (&["chunked"], []) => State::ChunkSize,
            ([], [length]) => State::Length(length.parse().map_err(|_| "a length".to_owned())?),
            ([], []) if self.method.is_some() => State::UntilClose,
            ([], []) => State::Ended,
            _ => return Err("two framings".to_owned()),
        })
    }
}

impl Reader for Http1Reader {
    fn take(&mut self, bytes: &[u8]) {
        self.received += bytes.len();
        self.buffer.extend_from_slice(bytes);
        self.parse();
    }

    fn close(&mut self, in_order: bool) {
        if self.reading.end.is_none() {
            let is_end = self.state == State::UntilClose && in_order;
            self.reading.end = Some(if is_end {
                End::Whole
            } else {
                End::Cut(in_order)
            });
        }
    }

    fn reading(&self) -> &Reading {
        &self.reading
    }

    fn received(&self) -> usize {
        self.received
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}
