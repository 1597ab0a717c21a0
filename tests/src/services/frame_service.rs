//! A service of HTTP/2 that writes raw frames, also those that a library would not send, and knows which
//! names of fields its peer has put into the table of a connection (RFC 7541 §2.3.2).

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use crate::services::echo_service::MARK;
use crate::wire::h2_frames::{Frame, frame_of, header_block};
use crate::wire::hpack::{Decoder, Field};

const PREFACE_BYTES: usize = 24;

/// A request that has arrived whole.
#[derive(Debug, Clone)]
pub struct FrameRequest {
    /// The number of its connection, from 0.
    pub connection: usize,
    /// Its stream.
    pub stream: u32,
    /// The fields of its head, then its trailers.
    pub fields: Vec<Field>,
}

impl FrameRequest {
    /// Returns the value of a field, or an empty text.
    pub fn value(&self, name: &str) -> &str {
        let mut fields = self.fields.iter();
        let found = fields.find(|field| field.0 == name);
        found.map_or("", |field| &*field.1)
    }

    /// Writes a response with these fields and no body.
    pub fn response(&self, fields: &[(&str, &str)]) -> Vec<u8> {
        // Names of HTTP/2 have small letters.
        let mark = MARK.to_ascii_lowercase();
        let fields = [&[(":status", "200"), (&*mark, "1")], fields].concat();
        frame_of(1, 0x5, self.stream, &header_block(&fields))
    }
}

#[derive(Debug, Default)]
struct Seen {
    requests: Vec<FrameRequest>,
    connections: usize,
    kept: BTreeSet<String>,
}

/// A running service.
#[derive(Debug)]
pub struct FrameService {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

impl FrameService {
    /// Starts on a free port. `respond` returns the frames for a request; after `None` nothing more is read
    /// from its connection, or written to it, and it stays open.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start(
        respond: impl Fn(&FrameRequest) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("the address just bound");
        let (seen, respond) = (Arc::<Mutex<Seen>>::default(), Arc::new(respond));
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (seen, respond) = (Arc::clone(&shared), Arc::clone(&respond));
                let connection = lock(&seen).connections;
                lock(&seen).connections += 1;
                std::thread::spawn(move || serve(socket, connection, &seen, &*respond));
            }
        });
        Self { address, seen }
    }

    /// Returns the value for `--upstream`.
    pub fn url(&self) -> String {
        format!("h2c://{}", self.address)
    }

    /// Returns every request so far, oldest first.
    pub fn requests(&self) -> Vec<FrameRequest> {
        lock(&self.seen).requests.clone()
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        lock(&self.seen).connections
    }

    /// Returns the names that any connection's table had at the end of a block.
    pub fn kept_names(&self) -> BTreeSet<String> {
        lock(&self.seen).kept.clone()
    }
}

fn serve(
    mut socket: TcpStream,
    connection: usize,
    seen: &Mutex<Seen>,
    respond: &dyn Fn(&FrameRequest) -> Option<Vec<u8>>,
) -> Option<()> {
    socket.read_exact(&mut [0; PREFACE_BYTES]).ok()?;
    socket.write_all(&frame_of(4, 0, 0, &[])).ok()?;
    let mut decoder = Decoder::default();
    let mut open: Vec<FrameRequest> = Vec::new();
    while let Some(frame) = Frame::read(&mut socket) {
        if frame.kind == 4 && frame.flags & 1 == 0 {
            socket.write_all(&frame_of(4, 1, 0, &[])).ok()?;
        }
        if frame.kind == 1 {
            let fields = decoder.read(&frame.payload)?;
            lock(seen).kept.extend(decoder.names().map(str::to_owned));
            match open.iter_mut().find(|one| one.stream == frame.stream) {
                Some(request) => request.fields.extend(fields),
                None => open.push(FrameRequest {
                    connection,
                    stream: frame.stream,
                    fields,
                }),
            }
        }
        let at = open.iter().position(|one| one.stream == frame.stream);
        if let Some(at) = at
            && matches!(frame.kind, 0 | 1)
            && frame.flags & 1 == 1
        {
            let request = open.swap_remove(at);
            lock(seen).requests.push(request.clone());
            let Some(frames) = respond(&request) else {
                // The socket stays open until the test ends.
                loop {
                    std::thread::park();
                }
            };
            socket.write_all(&frames).ok()?;
        }
    }
    Some(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
