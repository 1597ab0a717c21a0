//! A well-behaved client that speaks HTTP/2 without TLS.

use std::net::SocketAddr;
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
