//! A service that speaks HTTP/2 only, as gRPC services do: it echoes every body and ends each
//! response with a trailer. As Netty does, it ends a connection for too long fields or too many resets;
//! as `h2` does, for resets of requests that it has not accepted; as hyper-h2 does, for a blank at an
//! end of a value, also once it has joined the cookies. It has one window for a body and for the
//! connection. `GET …/large` returns 20 MB, `…/drops` half a MB in frames of a few bytes, `…/early`
//! responds before its body, `…/hints` with an interim response first, `…/blanks` with blanks at the
//! ends of values, `…/silent` reads nothing and does not respond, `…/reset` breaks its response off, and
//! gRPC's health service knows `down`, which does not serve, and the service without a name.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::services::echo_service::MARK;
use crate::wire::h2_client::{runtime, write};

/// The trailer at the end of each response.
pub const TRAILER: &str = "x-echo-trailer";

/// The most that one connection may bring: bytes of one block of fields, and resets.
const MAX_FIELDS: usize = 10 * 1024;
const MAX_RESETS: usize = 200;

const LARGE: &str = "/large";
const BEFORE_BODY: &str = "/early";
const RESET: &str = "/reset";
const DROPS: &str = "/drops";
const SILENT: &str = "/silent";
const HINTS: &str = "/hints";
const BLANKS: &str = "/blanks";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const LARGE_BYTES: usize = 20_000_000;
const DROP: Bytes = Bytes::from_static(&[b'x'; 20]);
const GRPC: &str = "application/grpc";
const FILE: &str = "application/octet-stream";

/// A received request.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    /// Method, target and fields.
    pub head: Arc<Request<()>>,
    /// Number of body bytes at its end; `None` while it goes on, or after an abort.
    pub body: Option<usize>,
    /// Fields after the body.
    pub trailers: HeaderMap,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Mutex<Vec<SeenRequest>>,
    connections: AtomicUsize,
    cut_off: AtomicUsize,
    resets: Mutex<Vec<u32>>,
}

/// The peer of one connection.
#[derive(Debug)]
struct Peer {
    seen: Arc<Seen>,
    resets: AtomicUsize,
    /// Signals that it went too far.
    breach: Notify,
}

impl Peer {
    fn sent(&self, fields: &HeaderMap) {
        let sizes = fields
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + 32);
        let cookies = fields.get_all("cookie").iter();
        let cookies: Vec<_> = cookies.map(HeaderValue::as_bytes).collect();
        let cookies = cookies.join(&b"; "[..]);
        let values = fields.values().map(HeaderValue::as_bytes);
        let mut values = values.chain([&cookies[..]]);
        let has_blank = values.any(|value| value.trim_ascii().len() < value.len());
        if has_blank || sizes.sum::<usize>() > MAX_FIELDS {
            self.breach.notify_one();
        }
    }

    fn reset(&self) {
        if self.resets.fetch_add(1, Ordering::SeqCst) >= MAX_RESETS {
            self.breach.notify_one();
        }
    }
}

/// A running service; stopped on drop.
#[derive(Debug)]
pub struct H2Service {
    address: Option<SocketAddr>,
    seen: Arc<Seen>,
    _runtime: Runtime,
}

impl H2Service {
    /// Length of `…/drops`: nearly the sidecar's window for one response.
    pub const DROPS_BYTES: usize = 520_000;

    /// Starts on a free port.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start() -> Self {
        let runtime = runtime();
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("a free port");
        let address = listener.local_addr().expect("the address just bound");
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        runtime.spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, Arc::clone(&shared)));
            }
        });
        Self {
            address: Some(address),
            seen,
            _runtime: runtime,
        }
    }

    /// Starts on a Unix socket.
    ///
    /// # Panics
    /// When it cannot be bound.
    pub fn start_on_socket(path: &Path) -> Self {
        let runtime = runtime();
        let guard = runtime.enter();
        let listener = UnixListener::bind(path).expect("a socket");
        drop(guard);
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        runtime.spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, Arc::clone(&shared)));
            }
        });
        Self {
            address: None,
            seen,
            _runtime: runtime,
        }
    }

    /// Returns the value for `--upstream`.
    ///
    /// # Panics
    /// When it listens on a socket.
    pub fn url(&self) -> String {
        format!("h2c://{}", self.address.expect("a port"))
    }

    /// Returns every request so far, oldest first.
    pub fn requests(&self) -> Vec<SeenRequest> {
        lock(&self.seen.requests).clone()
    }

    /// Clears the recorded requests, for long runs: later records may lack the ends of their
    /// requests.
    pub fn forget(&self) {
        lock(&self.seen.requests).clear();
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Returns the codes of the resets so far.
    pub fn resets(&self) -> Vec<u32> {
        lock(&self.seen.resets).clone()
    }

    /// Returns the number of requests that ended before their body.
    pub fn cut_off(&self) -> usize {
        self.seen.cut_off.load(Ordering::SeqCst)
    }
}

async fn serve(connection: impl AsyncRead + AsyncWrite + Unpin, seen: Arc<Seen>) {
    let Ok(mut connection) = h2::server::handshake(connection).await else {
        return;
    };
    seen.connections.fetch_add(1, Ordering::SeqCst);
    let peer = Arc::new(Peer {
        seen,
        resets: AtomicUsize::new(0),
        breach: Notify::new(),
    });
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(Ok((request, respond))) = accepted else {
                    return;
                };
                peer.sent(request.headers());
                tokio::spawn(respond_to(request, respond, Arc::clone(&peer)));
            }
            () = peer.breach.notified() => connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM),
        }
    }
}

async fn respond_to(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    peer: Arc<Peer>,
) {
    let seen = &peer.seen;
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if path.ends_with(HINTS) {
        let hints = Response::builder().status(103).header("link", "</a.css>");
        let _ = respond.send_informational(hints.body(()).expect("a head"));
    }
    let index = {
        let mut requests = lock(&seen.requests);
        requests.push(SeenRequest {
            head: Arc::new(Request::from_parts(head, ())),
            body: None,
            trailers: HeaderMap::new(),
        });
        requests.len() - 1
    };
    let mut trailers = HeaderMap::new();
    let served = match path.as_str() {
        HEALTH => health(body, respond).await,
        path if path.ends_with(LARGE) => large(respond).await,
        path if path.ends_with(RESET) => reset(respond).await,
        path if path.ends_with(DROPS) => drops(respond).await,
        path if path.ends_with(BLANKS) => blanks(respond),
        path if path.ends_with(SILENT) => until_reset(respond).await,
        path if path.ends_with(BEFORE_BODY) => respond_before_body(body, respond).await,
        _ => echo(body, respond, &mut trailers).await,
    };
    peer.sent(&trailers);
    match served {
        Ok(bytes) => {
            if let Some(request) = lock(&seen.requests).get_mut(index) {
                request.body = Some(bytes);
                request.trailers = trailers;
            }
        }
        Err(error) => {
            peer.reset();
            lock(&seen.resets).extend(error.reason().map(u32::from));
            seen.cut_off.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn echo(
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
    received: &mut HeaderMap,
) -> Result<usize, h2::Error> {
    let mut out = begin(&mut respond, GRPC)?;
    let mut bytes = 0;
    while let Some(data) = body.data().await {
        let data = data?;
        bytes += data.len();
        body.flow_control().release_capacity(data.len())?;
        write(&mut out, data, false).await?;
    }
    *received = body.trailers().await?.unwrap_or_default();
    let mut trailers = HeaderMap::new();
    trailers.insert(TRAILER, HeaderValue::from(bytes));
    end(&mut out, trailers)?;
    Ok(bytes)
}

/// Sends half a response.
async fn reset(mut respond: SendResponse<Bytes>) -> Result<usize, h2::Error> {
    let mut out = begin(&mut respond, FILE)?;
    write(&mut out, Bytes::from_static(b"half"), false).await?;
    // A reset would overtake it.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    out.send_reset(Reason::ENHANCE_YOUR_CALM);
    Ok(0)
}

/// Sends the whole response at once, before the rest of the body arrives.
async fn respond_before_body(
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
) -> Result<usize, h2::Error> {
    let mut out = begin(&mut respond, GRPC)?;
    end(&mut out, HeaderMap::new())?;
    while body.data().await.transpose()?.is_some() {}
    Ok(0)
}

/// Responds as protocol buffers have it, with a status of one byte.
async fn health(
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
) -> Result<usize, h2::Error> {
    let mut message = Vec::new();
    while let Some(data) = body.data().await {
        message.extend(data?);
    }
    let status = match message.as_slice() {
        [0, 0, 0, 0, 0] => 1,
        [0, 0, 0, 0, 6, 10, 4, b'd', b'o', b'w', b'n'] => 2,
        _ => {
            let head = Response::builder().header("grpc-status", "5");
            respond.send_response(head.body(()).expect("a head"), true)?;
            return Ok(message.len());
        }
    };
    let mut out = begin(&mut respond, GRPC)?;
    out.send_data(Bytes::from(vec![0, 0, 0, 0, 2, 8, status]), false)?;
    end(&mut out, HeaderMap::new())?;
    Ok(message.len())
}

async fn large(mut respond: SendResponse<Bytes>) -> Result<usize, h2::Error> {
    // Shared: a hundred of them at a time would take 2 GB.
    static BODY: LazyLock<Bytes> = LazyLock::new(|| vec![b'x'; LARGE_BYTES].into());
    let mut out = begin(&mut respond, FILE)?;
    write(&mut out, BODY.clone(), true).await?;
    Ok(0)
}

async fn drops(mut respond: SendResponse<Bytes>) -> Result<usize, h2::Error> {
    let mut out = begin(&mut respond, GRPC)?;
    for _ in 0..H2Service::DROPS_BYTES / DROP.len() {
        write(&mut out, DROP, false).await?;
    }
    end(&mut out, HeaderMap::new())?;
    Ok(0)
}

/// Responds with values that RFC 9113 §8.2.1 does not allow.
fn blanks(mut respond: SendResponse<Bytes>) -> Result<usize, h2::Error> {
    let head = Response::builder()
        .header(MARK, "1")
        .header("x-blanks", "\ta b ");
    let mut out = respond.send_response(head.body(()).expect("a head"), false)?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-message", HeaderValue::from_static("it failed: "));
    end(&mut out, trailers)?;
    Ok(0)
}

async fn until_reset(mut respond: SendResponse<Bytes>) -> Result<usize, h2::Error> {
    let reason = std::future::poll_fn(|cx| respond.poll_reset(cx)).await?;
    Err(reason.into())
}

/// Sends a head with the service's mark.
fn begin(
    respond: &mut SendResponse<Bytes>,
    media_type: &str,
) -> Result<SendStream<Bytes>, h2::Error> {
    let head = Response::builder().header(MARK, "1");
    let head = head.header("content-type", media_type);
    respond.send_response(head.body(()).expect("a head"), false)
}

/// Ends a call that went well.
fn end(out: &mut SendStream<Bytes>, mut trailers: HeaderMap) -> Result<(), h2::Error> {
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    out.send_trailers(trailers)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
