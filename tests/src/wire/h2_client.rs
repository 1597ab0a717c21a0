//! Clients that speak HTTP/2 without TLS: a well-behaved one, and one that writes raw frames.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::runtime::Runtime;

use crate::actors::client;
use crate::wait::TIMEOUT;

/// A well-behaved client with one connection.
#[derive(Debug)]
pub struct H2Client {
    runtime: Runtime,
    requests: SendRequest<Bytes>,
    authority: String,
}

/// A complete response.
#[derive(Debug)]
pub struct H2Response {
    /// Status and fields.
    pub head: Response<()>,
    /// The body.
    pub body: Vec<u8>,
    /// The trailers.
    pub trailers: HeaderMap,
}

impl H2Response {
    /// Returns status and reason code of a rejection, `200` for a success.
    pub fn verdict(&self) -> String {
        let of_status = || client::verdict_of(self.head.status().as_u16(), &self.body);
        self.grpc_verdict().unwrap_or_else(of_status)
    }

    /// Returns `grpc STATUS REASON` of a call that is rejected in its head.
    fn grpc_verdict(&self) -> Option<String> {
        let field = |name| self.head.headers().get(name)?.to_str().ok();
        let reason = field("grpc-message")?.split(':').next()?;
        Some(format!("grpc {} {reason}", field("grpc-status")?))
    }
}

/// A request whose body is still being written.
#[derive(Debug)]
pub struct OpenStream<'c> {
    client: &'c H2Client,
    body: SendStream<Bytes>,
    response: Option<h2::client::ResponseFuture>,
    incoming: Option<RecvStream>,
}

impl H2Client {
    /// Connects with prior knowledge.
    ///
    /// # Panics
    /// When the address accepts no connection, or no HTTP/2.
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("a connection")
    }

    /// Connects as `connect`.
    ///
    /// # Errors
    /// When the address accepts no connection, or no HTTP/2.
    pub fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        let runtime = runtime();
        let requests = runtime.block_on(async {
            let socket = tokio::net::TcpStream::connect(address).await?;
            let handshake = h2::client::handshake(socket).await;
            let (requests, connection) = handshake.map_err(std::io::Error::other)?;
            tokio::spawn(connection);
            Ok::<_, std::io::Error>(requests)
        })?;
        Ok(Self {
            runtime,
            requests,
            authority: address.to_string(),
        })
    }

    /// Creates a request head for an absolute path.
    ///
    /// # Panics
    /// When the head is invalid.
    pub fn request(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.authority));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request")
    }

    /// Sends a request with this body and reads the whole response.
    ///
    /// # Errors
    /// When the stream or the connection breaks.
    ///
    /// # Panics
    /// When no response arrives in time.
    pub fn send(&self, request: Request<()>, body: &[u8]) -> Result<H2Response, h2::Error> {
        let body = Bytes::copy_from_slice(body);
        self.within(exchange(self.requests.clone(), request, body))
    }

    /// Sends requests with their bodies at the same time, and reads all responses.
    ///
    /// # Panics
    /// When a response does not arrive in time.
    pub fn send_all(
        &self,
        requests: Vec<(Request<()>, Vec<u8>)>,
    ) -> Vec<Result<H2Response, h2::Error>> {
        let sent: Vec<_> = requests
            .into_iter()
            .map(|(request, body)| exchange(self.requests.clone(), request, body.into()))
            .map(|exchange| self.runtime.spawn(exchange))
            .collect();
        let responses = sent.into_iter().map(|response| self.within(response));
        responses
            .map(|response| response.expect("an exchange that ends"))
            .collect()
    }

    /// Opens a request and leaves its body open.
    ///
    /// # Panics
    /// When the connection is broken.
    pub fn open(&self, request: Request<()>) -> OpenStream<'_> {
        self.try_open(request).expect("a request")
    }

    /// Opens a request as `open`.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn try_open(&self, request: Request<()>) -> Result<OpenStream<'_>, h2::Error> {
        self.within(async {
            let mut requests = self.requests.clone().ready().await?;
            let (response, body) = requests.send_request(request, false)?;
            Ok(OpenStream {
                client: self,
                body,
                response: Some(response),
                incoming: None,
            })
        })
    }

    fn within<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { tokio::time::timeout(TIMEOUT, work).await })
            .expect("a response in time")
    }
}

impl OpenStream<'_> {
    /// Writes a part of the body.
    ///
    /// # Errors
    /// When the stream is closed.
    pub fn write(&mut self, part: &[u8]) -> Result<(), h2::Error> {
        self.client
            .within(write(&mut self.body, Bytes::copy_from_slice(part), false))
    }

    /// Writes until the server has taken nothing for three seconds; returns the number of bytes
    /// taken.
    pub fn fill(&mut self) -> usize {
        const PART: Bytes = Bytes::from_static(&[b'x'; 16 * 1024]);
        let mut taken = 0;
        loop {
            let part = write(&mut self.body, PART, false);
            let limited = async { tokio::time::timeout(Duration::from_secs(3), part).await };
            match self.client.runtime.block_on(limited) {
                Ok(Ok(())) => taken += PART.len(),
                _ => return taken,
            }
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    /// When the stream is closed.
    pub fn finish(&mut self) -> Result<(), h2::Error> {
        self.body.send_data(Bytes::new(), true)
    }

    /// Waits for the head of the response.
    ///
    /// # Errors
    /// When the stream is closed without a head.
    ///
    /// # Panics
    /// When it is called twice.
    pub fn head(&mut self) -> Result<Response<()>, h2::Error> {
        let response = self.response.take().expect("one head");
        let (head, incoming) = self.client.within(response)?.into_parts();
        self.incoming = Some(incoming);
        Ok(Response::from_parts(head, ()))
    }

    /// Reads the next part of the response's body; returns `None` at its end.
    ///
    /// # Errors
    /// When the stream was reset.
    ///
    /// # Panics
    /// Before the head.
    pub fn read(&mut self) -> Result<Option<Bytes>, h2::Error> {
        let incoming = self.incoming.as_mut().expect("the head first");
        self.client.within(async {
            let data = incoming.data().await.transpose()?;
            if let Some(data) = &data {
                incoming.flow_control().release_capacity(data.len())?;
            }
            Ok(data)
        })
    }

    /// Reads the trailers.
    ///
    /// # Errors
    /// When the stream was reset.
    ///
    /// # Panics
    /// Before the head.
    pub fn trailers(&mut self) -> Result<Option<HeaderMap>, h2::Error> {
        let incoming = self.incoming.as_mut().expect("the head first");
        self.client.within(incoming.trailers())
    }
}

async fn exchange(
    requests: SendRequest<Bytes>,
    request: Request<()>,
    body: Bytes,
) -> Result<H2Response, h2::Error> {
    let mut requests = requests.ready().await?;
    let (response, mut out) = requests.send_request(request, body.is_empty())?;
    let writing = async {
        if body.is_empty() {
            return Ok(());
        }
        write(&mut out, body, true).await
    };
    // A server may respond without reading the body.
    let (response, _) = tokio::join!(read(response), writing);
    response
}

async fn read(response: h2::client::ResponseFuture) -> Result<H2Response, h2::Error> {
    let (head, mut incoming) = response.await?.into_parts();
    let mut body = Vec::new();
    while let Some(data) = incoming.data().await {
        let data = data?;
        incoming.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    let trailers = incoming.trailers().await?.unwrap_or_default();
    Ok(H2Response {
        head: Response::from_parts(head, ()),
        body,
        trailers,
    })
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Sends no more than the window allows: a slow reader must not fill the sender's memory.
pub(crate) async fn write(
    out: &mut SendStream<Bytes>,
    mut data: Bytes,
    end: bool,
) -> Result<(), h2::Error> {
    while !data.is_empty() {
        out.reserve_capacity(data.len());
        match std::future::poll_fn(|cx| out.poll_capacity(cx)).await {
            Some(room) => {
                let part = data.split_to(room?.min(data.len()));
                out.send_data(part, end && data.is_empty())?;
            }
            None => return Err(h2::Reason::CANCEL.into()),
        }
    }
    Ok(())
}

/// A client that writes raw frames, also those that a library would not send.
#[derive(Debug)]
pub struct FrameClient(TcpStream);

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// RFC 9113 §6: 0 DATA, 1 HEADERS, 3 RST_STREAM, 4 SETTINGS, 7 GOAWAY.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 for the connection.
    pub stream: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Returns true for DATA that ends its stream.
    pub const fn ends_body(&self) -> bool {
        self.kind == 0 && self.flags & 1 == 1
    }
}

/// The end of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// A response, with its body.
    Response(String),
    /// A reset by the server.
    Reset,
    /// A closed connection.
    Closed,
}

impl FrameClient {
    /// Connects, sends the preface and empty settings.
    ///
    /// # Panics
    /// When the address accepts no connection.
    pub fn connect(address: SocketAddr) -> Self {
        Self::on(TcpStream::connect(address).expect("a connection"))
    }

    /// Sends the preface and empty settings on a connection.
    ///
    /// # Panics
    /// When it accepts no timeouts.
    pub fn on(socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(TIMEOUT)).expect("a deadline");
        socket.set_write_timeout(Some(TIMEOUT)).expect("a deadline");
        let mut client = Self(socket);
        client.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        client.frame(4, 0, 0, &[]);
        client
    }

    /// Returns the connection.
    pub const fn socket(&self) -> &TcpStream {
        &self.0
    }

    /// Returns the connection, for a client that stops reading.
    pub fn into_socket(self) -> TcpStream {
        self.0
    }

    /// Writes bytes; an error is ignored because the server may have closed the connection.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    /// Writes one frame.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.raw(&frame_of(kind, flags, stream, payload));
    }

    /// Writes a whole request head; `end` means that no body follows.
    pub fn head(&mut self, stream: u32, fields: &[(&str, &str)], end: bool) {
        let flags = 0x4 | u8::from(end);
        self.frame(1, flags, stream, &header_block(fields));
    }

    /// Changes the window of every stream to `bytes` (RFC 9113 §6.9.2).
    pub fn initial_window(&mut self, bytes: u32) {
        let setting = [&[0, 4][..], &bytes.to_be_bytes()].concat();
        self.frame(4, 0, 0, &setting);
    }

    /// Increases the window of a stream by `bytes`; stream 0 is the connection.
    pub fn window_update(&mut self, stream: u32, bytes: u32) {
        self.frame(8, 0, stream, &bytes.to_be_bytes());
    }

    /// Reads until the server has acknowledged this many settings; returns how many bodies ended.
    ///
    /// # Panics
    /// When the server closes before.
    pub fn read_acknowledged(&mut self, settings: usize) -> usize {
        let (mut acknowledged, mut ended) = (0, 0);
        while acknowledged < settings {
            let frame = self.frame_from_server().expect("an open connection");
            acknowledged += usize::from(frame.kind == 4 && frame.flags & 1 == 1);
            ended += usize::from(frame.ends_body());
        }
        ended
    }

    /// Reads the next frame; returns `None` when the server has closed.
    pub fn frame_from_server(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).ok()?];
        self.0.read_exact(&mut payload).ok()?;
        Some(Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff,
            payload,
        })
    }

    /// Reads until this stream ends and returns its end.
    pub fn fate(&mut self, stream: u32) -> Fate {
        let mut body = Vec::new();
        while let Some(frame) = self.frame_from_server() {
            match frame.kind {
                4 if frame.flags & 1 == 0 => self.frame(4, 1, 0, &[]),
                7 => return Fate::Closed,
                3 if frame.stream == stream => return Fate::Reset,
                0 if frame.stream == stream => body.extend_from_slice(&frame.payload),
                _ => {}
            }
            let ended = matches!(frame.kind, 0 | 1) && frame.flags & 1 == 1;
            if frame.stream == stream && ended {
                return Fate::Response(String::from_utf8_lossy(&body).into_owned());
            }
        }
        Fate::Closed
    }

    /// Reads the frames of one stream.
    pub fn frames_of(&mut self, stream: u32) -> impl Iterator<Item = Frame> {
        let frames = std::iter::from_fn(|| self.frame_from_server());
        frames.filter(move |frame| frame.stream == stream)
    }

    /// Reads until the server closes; returns false if it does not in time.
    pub fn is_closed(&mut self) -> bool {
        let end = std::io::copy(&mut self.0, &mut std::io::sink());
        end.err().is_none_or(|error| {
            let is_open = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
            !is_open.contains(&error.kind())
        })
    }
}

/// Returns a frame as bytes.
pub fn frame_of(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let length = length.to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// Returns the pseudo-header fields of a GET.
pub fn get_fields(path: &str) -> Vec<(&'static str, &str)> {
    fields_of("GET", path)
}

/// Returns the pseudo-header fields of a request.
pub fn fields_of<'f>(method: &'f str, path: &'f str) -> Vec<(&'static str, &'f str)> {
    vec![
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
    ]
}

/// Encodes HPACK literals only (RFC 7541 §6.2.2).
///
/// # Panics
/// When a name or value is longer than 16 KiB.
pub fn header_block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            string_length(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Encodes a length with a prefix of seven bits (RFC 7541 §5.1).
fn string_length(block: &mut Vec<u8>, length: usize) {
    if let Ok(short @ 0..127) = u8::try_from(length) {
        block.push(short);
        return;
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).expect("seven bits") | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).expect("seven bits"));
}
