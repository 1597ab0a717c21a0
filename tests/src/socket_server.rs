//! An HTTP/1.1 server of the harness: records every request as bytes and answers with whatever
//! bytes a closure returns. The service behind the sidecar and the fake auth server are both one.

use std::collections::HashMap;
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::message::Message;

/// What a closure wants done with a request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// These bytes, and the connection stays open.
    Bytes(Vec<u8>),
    /// These bytes, and the connection is closed.
    BytesThenClose(Vec<u8>),
    /// Nothing, while the connection stays open: the peer that hangs.
    Silence,
}

/// A server on a free port of the loopback address; gone on drop.
#[derive(Debug)]
pub struct SocketServer {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: Mutex<Vec<Message>>,
    /// What it speaks TLS with, if it does; may change between connections.
    tls: Mutex<Option<Arc<ServerConfig>>>,
    /// The open ones, by their number: the descriptors of ended ones are not kept.
    connections: Mutex<HashMap<usize, TcpStream>>,
    made: AtomicUsize,
    stopped: AtomicBool,
}

impl SocketServer {
    /// Starts on a free port.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start(answer: impl Fn(&Message) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_on("127.0.0.1:0".parse().expect("an address"), answer)
    }

    /// Starts on this address; for a server that comes back where it was.
    ///
    /// # Panics
    /// When the address is taken.
    pub fn start_on(
        address: SocketAddr,
        answer: impl Fn(&Message) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::serve_on(address, None, answer)
    }

    /// Starts on a free port, with TLS.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start_tls(
        tls: Arc<ServerConfig>,
        answer: impl Fn(&Message) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::serve_on(
            "127.0.0.1:0".parse().expect("an address"),
            Some(tls),
            answer,
        )
    }

    fn serve_on(
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(&Message) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener =
            TcpListener::bind(address).unwrap_or_else(|error| panic!("bind {address}: {error}"));
        let address = listener.local_addr().expect("the address just bound");
        let state = Arc::new(State {
            tls: Mutex::new(tls),
            ..State::default()
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || accept(&listener, &shared, Arc::new(answer)));
        Self { address, state }
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it speaks TLS with from now on, with those who connect anew.
    pub fn now_shows(&self, tls: Arc<ServerConfig>) {
        *lock(&self.state.tls) = Some(tls);
    }

    /// Everything received so far, oldest first.
    pub fn requests(&self) -> Vec<Message> {
        lock(&self.state.requests).clone()
    }

    /// How many connections were made so far, and how many of them are open.
    pub fn connections(&self) -> (usize, usize) {
        let open = lock(&self.state.connections).len();
        (self.state.made.load(Ordering::SeqCst), open)
    }

    /// Forgets what was received.
    pub fn forget(&self) {
        lock(&self.state.requests).clear();
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        // One connection wakes the accepting thread, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
        for (_, connection) in lock(&self.state.connections).drain() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

type Answer = dyn Fn(&Message) -> Reply + Send + Sync;

fn accept(listener: &TcpListener, state: &Arc<State>, answer: Arc<Answer>) {
    for connection in listener.incoming() {
        if state.stopped.load(Ordering::SeqCst) {
            return;
        }
        let Ok(connection) = connection else { continue };
        let Ok(ours) = connection.try_clone() else {
            continue;
        };
        // Before it can end.
        let number = state.made.fetch_add(1, Ordering::SeqCst);
        lock(&state.connections).insert(number, ours);
        let (state, answer) = (Arc::clone(state), Arc::clone(&answer));
        std::thread::spawn(move || {
            serve(connection, &state, answer.as_ref());
            lock(&state.connections).remove(&number);
        });
    }
}

/// What is read from and written to, with TLS or without.
trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// One connection; a peer that breaks off ends it, and that is no fault of the test.
fn serve(connection: TcpStream, state: &State, answer: &Answer) {
    let Ok(plain) = connection.try_clone() else {
        return;
    };
    let tls = lock(&state.tls).clone();
    let stream: Box<dyn Stream> = match tls.map(ServerConnection::new) {
        None => Box::new(plain),
        Some(Ok(tls)) => Box::new(StreamOwned::new(tls, plain)),
        Some(Err(_)) => return,
    };
    let mut stream = BufReader::new(stream);
    while let Ok(Some(request)) = Message::read_request(&mut stream) {
        lock(&state.requests).push(request.clone());
        let writer = stream.get_mut();
        let mut send = |bytes: &[u8]| writer.write_all(bytes).and_then(|()| writer.flush());
        let sent = match answer(&request) {
            Reply::Bytes(bytes) => send(&bytes).is_ok(),
            Reply::BytesThenClose(bytes) => {
                let _ = send(&bytes);
                false
            }
            Reply::Silence => true,
        };
        if !sent {
            break;
        }
    }
    let _ = connection.shutdown(Shutdown::Both);
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An HTTP/1.1 answer as bytes, `Content-Length` included.
pub fn response(status_line: &str, header_lines: &[&str], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status_line}\r\n").into_bytes();
    for line in header_lines {
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes
}
