//! A service with long responses: events, tunnels, downloads that wait for the test, and uploads
//! that it reads or ignores.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::services::echo_service::MARK;
use crate::services::socket_server::serve_each;
use crate::wait;
use crate::wire::raw_client::COMPLETION;

/// The service. It lives as long as the test's process.
#[derive(Debug)]
pub struct StreamingService {
    address: SocketAddr,
    state: Arc<State>,
    gate: Sender<()>,
}

#[derive(Debug)]
struct State {
    heads: Mutex<Vec<String>>,
    broken_off: AtomicUsize,
    received: AtomicUsize,
    gate: Mutex<Receiver<()>>,
}

impl StreamingService {
    /// Starts on a free port.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start() -> Self {
        let (gate, waiting) = channel();
        let state = Arc::new(State {
            heads: Mutex::default(),
            broken_off: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
            gate: Mutex::new(waiting),
        });
        let shared = Arc::clone(&state);
        Self {
            address: serve_each(move |_, connection| shared.serve(connection)),
            state,
            gate,
        }
    }

    /// Returns the value for `--upstream`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Continues one waiting response.
    pub fn go_on(&self) {
        let _ = self.gate.send(());
    }

    /// Returns the heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        lock(&self.state.heads).clone()
    }

    /// Returns the number of upload bytes so far.
    pub fn received(&self) -> usize {
        self.state.received.load(Ordering::SeqCst)
    }

    /// Waits until the peer has reset this many connections in the middle of a stream.
    pub fn wait_for_broken_off(&self, count: usize) {
        wait::until("the service to be left", || {
            self.state.broken_off.load(Ordering::SeqCst) >= count
        });
    }
}

impl State {
    fn serve(&self, mut connection: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(connection.try_clone()?);
        loop {
            let head = read_head(&mut reader)?;
            if head.is_empty() {
                return Ok(());
            }
            lock(&self.heads).push(head.clone());
            let target = head.split(' ').nth(1).unwrap_or_default();
            match target.rsplit('/').next().unwrap_or_default() {
                "events" => return self.events(&mut reader, &mut connection),
                "websocket" => return self.tunnel(&mut reader, &mut connection, &head),
                "silent" => {
                    self.until_left(&mut reader);
                    return Ok(());
                }
                "download" => self.download(&mut connection)?,
                "endless" => return self.endless(&mut connection),
                "early" => self.early_hints(&mut connection)?,
                "until-close" => {
                    write!(
                        connection,
                        "HTTP/1.1 200 OK\r\n{MARK}: 1\r\n\r\nuntil the end"
                    )?;
                    return Ok(());
                }
                "dies" => {
                    write!(
                        connection,
                        "HTTP/1.1 200 OK\r\n{MARK}: 1\r\nContent-Length: 100\r\n\r\nhalf"
                    )?;
                    return Ok(());
                }
                "upload" => self.upload(&mut reader, &mut connection, &head)?,
                _ => {
                    write!(
                        connection,
                        "HTTP/1.1 200 OK\r\n{MARK}: 1\r\nContent-Length: 4\r\n\r\nfine"
                    )?;
                }
            }
        }
    }

    fn events(&self, reader: &mut impl Read, connection: &mut TcpStream) -> std::io::Result<()> {
        write!(
            connection,
            "HTTP/1.1 200 OK\r\n{MARK}: 1\r\nContent-Type: text/event-stream\r\n\
             Transfer-Encoding: chunked\r\n\r\ne\r\ndata: first\n\n\n\r\n"
        )?;
        self.until_left(reader);
        Ok(())
    }

    fn tunnel(
        &self,
        reader: &mut impl Read,
        connection: &mut TcpStream,
        head: &str,
    ) -> std::io::Result<()> {
        let protocol = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-protocol"))
            .map(|(_, protocol)| format!("Sec-WebSocket-Protocol: {protocol}\r\n"))
            .unwrap_or_default();
        write!(
            connection,
            "HTTP/1.1 101 Switching Protocols\r\n{MARK}: 1\r\n{COMPLETION}{protocol}\r\n"
        )?;
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            connection.write_all(buffer.get(..count).unwrap_or_default())?;
        }
        self.broken_off.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Sends half at once and half after the test's signal.
    fn download(&self, connection: &mut TcpStream) -> std::io::Result<()> {
        write!(
            connection,
            "HTTP/1.1 200 OK\r\n{MARK}: 1\r\nContent-Type: video/mp4\r\nContent-Length: 8\r\n\r\nhalf"
        )?;
        let _ = lock(&self.gate).recv_timeout(wait::TIMEOUT);
        connection.write_all(b"more")
    }

    /// Sends until the peer stops reading; `received` counts the bytes written.
    fn endless(&self, connection: &mut TcpStream) -> std::io::Result<()> {
        let chunk = [b'x'; 64 * 1024];
        write!(connection, "HTTP/1.1 200 OK\r\n{MARK}: 1\r\n\r\n")?;
        while connection.write_all(&chunk).is_ok() {
            self.received.fetch_add(chunk.len(), Ordering::SeqCst);
        }
        self.broken_off.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn early_hints(&self, connection: &mut TcpStream) -> std::io::Result<()> {
        write!(
            connection,
            "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n\
             HTTP/1.1 200 OK\r\n{MARK}: 1\r\nContent-Length: 4\r\n\r\nfine"
        )
    }

    /// Reads the body up to the point that the test sets, by default to its end.
    fn upload(
        &self,
        reader: &mut impl BufRead,
        connection: &mut TcpStream,
        head: &str,
    ) -> std::io::Result<()> {
        let lower = head.to_ascii_lowercase();
        if lower.contains("\r\nexpect: 100-continue") {
            write!(connection, "HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        if lower.contains("\r\nx-wait: 1") {
            let _ = lock(&self.gate).recv_timeout(wait::TIMEOUT);
        }
        let length = lower
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .and_then(|length| length.trim().parse::<usize>().ok());
        let bytes = match length {
            Some(length) => self.read_bytes(reader, length)?,
            None => self.read_chunks(reader)?,
        };
        let body = bytes.to_string();
        write!(
            connection,
            "HTTP/1.1 200 OK\r\n{MARK}: 1\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn read_bytes(&self, reader: &mut impl Read, length: usize) -> std::io::Result<usize> {
        let mut buffer = vec![0; 64 * 1024];
        let mut left = length;
        while left > 0 {
            let max = left.min(buffer.len());
            let count = reader.read(buffer.get_mut(..max).unwrap_or_default())?;
            if count == 0 {
                self.broken_off.fetch_add(1, Ordering::SeqCst);
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            left -= count;
            self.received.fetch_add(count, Ordering::SeqCst);
        }
        Ok(length)
    }

    fn read_chunks(&self, reader: &mut impl BufRead) -> std::io::Result<usize> {
        let mut bytes = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let length = usize::from_str_radix(line.trim(), 16)
                .map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidData))?;
            bytes += self.read_bytes(reader, length)?;
            line.clear();
            reader.read_line(&mut line)?;
            if length == 0 {
                return Ok(bytes);
            }
        }
    }

    fn until_left(&self, reader: &mut impl Read) {
        let mut byte = [0];
        while matches!(reader.read(&mut byte), Ok(1..)) {}
        self.broken_off.fetch_add(1, Ordering::SeqCst);
    }
}

fn read_head(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut head = String::new();
    loop {
        let start = head.len();
        if reader.read_line(&mut head)? == 0 {
            return Ok(String::new());
        }
        if head.get(start..).is_some_and(|line| line.trim().is_empty()) {
            return Ok(head);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
