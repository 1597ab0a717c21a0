//! An HTTP/1.1 server of the harness: records every request as bytes and responds with the bytes of
//! a closure. The echo service and the fake auth server are built on it.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::wire::message::Message;

/// Response of a closure to a request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Sends these bytes and keeps the connection open.
    Bytes(Vec<u8>),
    /// Sends these bytes and closes the connection.
    BytesThenClose(Vec<u8>),
    /// Sends nothing and keeps the connection open: a hanging peer.
    Silence,
}

/// A server on a free port of the loopback address; stopped on drop.
#[derive(Debug)]
pub struct SocketServer {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: Mutex<Vec<Message>>,
    /// TLS settings, if any; may change between connections.
    tls: Mutex<Option<Arc<ServerConfig>>>,
    /// Open connections by number; ended ones are removed, which frees their descriptors.
    connections: Mutex<HashMap<usize, TcpStream>>,
    made: AtomicUsize,
    stopped: AtomicBool,
}

impl SocketServer {
    /// Starts a server on a free port.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start(respond: impl Fn(&Message) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_on("127.0.0.1:0".parse().expect("an address"), respond)
    }

    /// Starts a server on this address, such as the address of a previous one.
    ///
    /// # Panics
    /// When the address is taken.
    pub fn start_on(
        address: SocketAddr,
        respond: impl Fn(&Message) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::serve_on(address, None, respond)
    }

    /// Starts a server with TLS on a free port.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start_tls(
        tls: Arc<ServerConfig>,
        respond: impl Fn(&Message) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::serve_on(
            "127.0.0.1:0".parse().expect("an address"),
            Some(tls),
            respond,
        )
    }

    fn serve_on(
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        respond: impl Fn(&Message) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener =
            TcpListener::bind(address).unwrap_or_else(|error| panic!("bind {address}: {error}"));
        let address = listener.local_addr().expect("the address just bound");
        let state = Arc::new(State {
            tls: Mutex::new(tls),
            ..State::default()
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || accept(&listener, &shared, Arc::new(respond)));
        Self { address, state }
    }

    /// Returns the listen address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the TLS settings for new connections.
    pub fn set_tls(&self, tls: Arc<ServerConfig>) {
        *lock(&self.state.tls) = Some(tls);
    }

    /// Returns all requests so far, oldest first.
    pub fn requests(&self) -> Vec<Message> {
        lock(&self.state.requests).clone()
    }

    /// Returns the number of connections so far, and how many are open.
    pub fn connections(&self) -> (usize, usize) {
        let open = lock(&self.state.connections).len();
        (self.state.made.load(Ordering::SeqCst), open)
    }

    /// Clears the recorded requests.
    pub fn forget(&self) {
        lock(&self.state.requests).clear();
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then sees the end flag.
        let _ = TcpStream::connect(self.address);
        for (_, connection) in lock(&self.state.connections).drain() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// Runs `serve` for each connection to a free port, with its number, for as long as the process
/// lives. An error is a closed connection.
///
/// # Panics
/// When no port is free.
pub fn serve_each<F>(serve: F) -> SocketAddr
where
    F: Fn(usize, TcpStream) -> io::Result<()> + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("the address just bound");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(number, stream));
        }
    });
    address
}

type Respond = dyn Fn(&Message) -> Reply + Send + Sync;

fn accept(listener: &TcpListener, state: &Arc<State>, respond: Arc<Respond>) {
    for connection in listener.incoming() {
        if state.stopped.load(Ordering::SeqCst) {
            return;
        }
        let Ok(connection) = connection else { continue };
        let Ok(ours) = connection.try_clone() else {
            continue;
        };
        // Counted before the connection can end.
        let number = state.made.fetch_add(1, Ordering::SeqCst);
        lock(&state.connections).insert(number, ours);
        let (state, respond) = (Arc::clone(state), Arc::clone(&respond));
        std::thread::spawn(move || {
            serve(connection, &state, respond.as_ref());
            lock(&state.connections).remove(&number);
        });
    }
}

/// A connection with or without TLS.
trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// Serves one connection; a peer's reset ends it and is no test failure.
fn serve(connection: TcpStream, state: &State, respond: &Respond) {
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
        let sent = match respond(&request) {
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

/// Returns an HTTP/1.1 response as bytes, `Content-Length` included.
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
