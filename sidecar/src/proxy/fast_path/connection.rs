//! The requests of one connection, one after the other.

use std::cell::OnceCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use contract::http::framing::Body;
use contract::http::framing::body::BodyReader;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};
use pingora::http::RequestHeader;
use pingora::protocols::l4::socket::SocketAddr as ServiceAddress;
use runtime::clock::unix_now;
use runtime::listener::CLIENT_IDLE;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

use super::download::Download;
use super::exchange::{Exchange, Failure, Limits, Waits};
use super::request_head::{self, RequestBlock};
use super::response_head::{ResponseHead, ResponseTo};
use super::timer::Timer;
use super::upload::Upload;
use super::{Connected, Departure, FastPath, Left};
use crate::auth::authorize::Forward;
use crate::config::live::Rules;
use crate::downstream::limits::InFlightPermit;
use crate::downstream::stream::ClientStream;
use crate::headers::forwarded::Client;
use crate::proxy::phases::{Action, AuthProxy};
use crate::proxy::response::{DRAIN_TIMEOUT, LocalResponse};
use crate::request::kind::RequestKind;
use crate::telemetry::access_log::RequestRecord;
use crate::telemetry::outcome::Outcome;
use crate::telemetry::request_id::RequestIds;
use crate::upstream::errors;
use crate::upstream::{Sent, Tries};

/// Most heads for the service fit.
const HEAD_ROOM: usize = 1024;
/// Most heads arrive in one read.
const HEAD_READ: usize = 4 * 1024;

/// One request, as it came until the service gets another head.
pub(super) struct Request {
    pub(super) head: Box<RequestHeader>,
    pub(super) raw: Bytes,
    version: Version,
    /// The client's connection may carry another request.
    keep_alive: bool,
    body: Body,
    pub(super) rules: Arc<Rules>,
    ids: RequestIds,
    began: Instant,
}

/// A request that goes to the service.
struct Admitted {
    forward: Forward,
    decided: Instant,
    _permit: InFlightPermit,
}

/// How far a request has come.
pub(super) struct Progress {
    pub(super) tries: Tries,
    /// The address that was tried last.
    pub(super) service: Option<ServiceAddress>,
    download: Download,
    outcome: Outcome,
    cause: Option<String>,
    status: Option<u16>,
}

/// One connection of a client.
pub(super) struct Connection<'a> {
    path: &'a FastPath,
    stream: &'a mut ClientStream,
    client: Client,
    /// Bytes that came and were not used yet.
    received: BytesMut,
    timer: Timer,
}

impl<'a> Connection<'a> {
    pub(super) fn new(path: &'a FastPath, stream: &'a mut ClientStream, client: Client) -> Self {
        Self {
            path,
            stream,
            client,
            received: BytesMut::new(),
            timer: Timer::default(),
        }
    }

    pub(super) async fn serve(mut self) -> Left {
        while let Some(taken) = self.next_head().await {
            let block = match taken {
                Ok(block) => block,
                Err(departure) => return Left::ToPingora(departure, self.received.freeze()),
            };
            if !self
                .serve_request(Request::new(block, &self.path.proxy))
                .await
            {
                break;
            }
        }
        Left::Closed
    }

    /// Waits for the head of a request; `None` once there will be no other.
    async fn next_head(&mut self) -> Option<Result<RequestBlock, Departure>> {
        loop {
            if !self.received.is_empty()
                && let Some(taken) = request_head::take(&mut self.received).transpose()
            {
                return Some(taken);
            }
            if self.read().await.ok()? == 0 {
                return None;
            }
        }
    }

    /// Reads what has come. A connection that waits for its next request keeps no buffer for it.
    async fn read(&mut self) -> io::Result<usize> {
        let Self {
            path,
            stream,
            received,
            timer,
            ..
        } = self;
        let is_idle = received.is_empty();
        let idle_until = tokio::time::Instant::now() + CLIENT_IDLE;
        let mut closing = pin!(path.closing.cancelled());
        poll_fn(|cx| {
            let mut bytes = [0; HEAD_READ];
            let mut buffer = ReadBuf::new(&mut bytes);
            if let Poll::Ready(read) = Pin::new(&mut **stream).poll_read(cx, &mut buffer) {
                received.extend_from_slice(buffer.filled());
                return Poll::Ready(read.map(|()| buffer.filled().len()));
            }
            let is_over = is_idle
                && (closing.as_mut().poll(cx).is_ready()
                    || timer.poll_until(cx, idle_until).is_ready());
            if is_over {
                Poll::Ready(Ok(0))
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// Serves a request to its end; false where the connection ends with it.
    async fn serve_request(&mut self, mut request: Request) -> bool {
        let proxy = &self.path.proxy;
        let _counted = proxy.metrics.request_began();
        self.stream.set_handling(true);
        proxy.metrics.fast_path_taken();
        let decision = self.path.decide(&request).await;
        let decided = Instant::now();
        proxy
            .metrics
            .decided(decided.saturating_duration_since(request.began));
        let mut progress = Progress::new();
        let keep_alive = match proxy.act_on(decision, decided) {
            Action::Forward(forward, permit) => {
                progress.outcome = forward.outcome();
                let admitted = Admitted {
                    forward,
                    decided,
                    _permit: permit,
                };
                self.carry(&mut request, &admitted, &mut progress).await
            }
            Action::Respond(outcome, answer) => {
                progress.outcome = outcome;
                let answer = answer.with(request.common_response_headers(&request.head.headers));
                let body = BodyReader::new(request.body);
                let keep_alive = request.keep_alive && !request.expects_continue();
                self.respond(&answer, &request, keep_alive, body, &mut progress)
                    .await
            }
        };
        self.path.record(&request, self.client, &progress);
        self.stream.set_handling(false);
        keep_alive
    }

    /// Sends a response of the sidecar, and reads the rest of the request.
    async fn respond(
        &mut self,
        answer: &LocalResponse,
        request: &Request,
        keep_alive: bool,
        mut body: BodyReader,
        progress: &mut Progress,
    ) -> bool {
        let keep_alive = keep_alive && !answer.must_close() && !self.path.proxy.draining.is_on();
        progress.status = Some(answer.status().as_u16());
        let bytes = answer.to_http_1(&request.head.method, keep_alive);
        let sent = async {
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await
        };
        if sent.await.is_err() {
            return false;
        }
        let rest = self.read_rest(&mut body);
        let is_read = matches!(tokio::time::timeout(DRAIN_TIMEOUT, rest).await, Ok(Ok(())));
        keep_alive && is_read
    }

    /// Reads the rest of a body that nobody wants: a client that is still sending reads the response only
    /// when it is done.
    async fn read_rest(&mut self, body: &mut BodyReader) -> io::Result<()> {
        while !body.is_done() {
            let piece = body.next_piece(&self.received).map_err(io::Error::other)?;
            self.received.advance(piece.skipped + piece.data);
            if self.received.is_empty()
                && !body.is_done()
                && self.stream.read_buf(&mut self.received).await? == 0
            {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Carries a request to the service and the response back; false where the connection ends with it.
    async fn carry(
        &mut self,
        request: &mut Request,
        admitted: &Admitted,
        progress: &mut Progress,
    ) -> bool {
        let mut upload = match request.upload(self.client, &admitted.forward) {
            Ok(upload) => upload,
            Err(error) => {
                let body = BodyReader::new(request.body);
                self.fail(request, error.into(), body, progress).await;
                return false;
            }
        };
        if let Err(failure) = self
            .exchange(request, admitted, &mut upload, progress)
            .await
        {
            self.fail(request, failure, upload.into_rest(), progress)
                .await;
            return false;
        }
        let is_received = upload.is_received();
        if !is_received {
            let mut rest = upload.into_rest();
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, self.read_rest(&mut rest)).await;
        }
        let head = progress.download.head();
        is_received && head.is_some_and(|head| head.keep_client)
    }

    /// Returns once the client has been sent the response.
    async fn exchange(
        &mut self,
        request: &Request,
        admitted: &Admitted,
        upload: &mut Upload,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let echo = request.ids.echo();
        loop {
            let kind = admitted.forward.kind;
            let mut connected = self.path.connect(kind, progress).await?;
            let exchange = Exchange {
                client: self.stream,
                received: &mut self.received,
                service: &mut connected.stream,
                upload,
                download: &mut progress.download,
                timer: &mut self.timer,
                draining: &self.path.proxy.draining,
                request: request.for_response(echo.as_ref()),
                limits: self.path.limits(admitted),
                waits: Waits::default(),
            };
            let on_head =
                |head: &_, limits: &mut _| self.path.response_began(admitted, head, limits);
            match exchange.run(on_head).await {
                Ok(()) => {
                    self.path
                        .keep(connected, request, upload, &progress.download);
                    return Ok(());
                }
                Err(Failure::Error(error))
                    if progress.may_retry(&error, request, &connected, upload) =>
                {
                    progress.download = Download::default();
                    upload.rewind();
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Responds to a request that failed, where its response has not begun. `rest` of its body was not read.
    async fn fail(
        &mut self,
        request: &Request,
        failure: Failure,
        rest: BodyReader,
        progress: &mut Progress,
    ) {
        let error = match failure {
            Failure::Error(error) => error,
            Failure::TokenExpired => {
                self.path.proxy.metrics.stream_ended();
                progress.cause = Some("the token of the stream has expired".to_owned());
                return;
            }
        };
        let rejection = errors::rejection_of(&error);
        progress.outcome = rejection.map_or(Outcome::Aborted, Outcome::Rejected);
        progress.cause = Some(errors::log_cause(&error));
        if let Some(rejection) = rejection.filter(|_| progress.download.head().is_none()) {
            let mut answer = LocalResponse::rejection(rejection);
            if let Some(received) = request_head::read_again(&request.raw) {
                answer = answer.with(request.common_response_headers(&received.headers));
            }
            self.respond(&answer, request, false, rest, progress).await;
        }
    }
}

impl Progress {
    fn new() -> Self {
        Self {
            tries: Tries::default(),
            service: None,
            download: Download::default(),
            outcome: Outcome::Aborted,
            cause: None,
            status: None,
        }
    }

    /// Returns whether the service may be sent the request again.
    fn may_retry(
        &mut self,
        error: &pingora::Error,
        request: &Request,
        connected: &Connected,
        upload: &Upload,
    ) -> bool {
        let sent = Sent {
            method: &request.head.method,
            reused: connected.is_reused,
            repeatable: upload.is_repeatable() && self.download.head().is_none(),
        };
        self.tries.after_sending(error, sent, Instant::now())
    }
}

impl Request {
    fn new(block: RequestBlock, proxy: &AuthProxy) -> Self {
        let RequestBlock {
            head,
            raw,
            body,
            keep_alive,
        } = block;
        Self {
            began: Instant::now(),
            rules: proxy.rules.load(),
            ids: proxy.correlation.ids(&head.headers),
            body,
            version: head.version,
            head,
            raw,
            keep_alive,
        }
    }

    /// Turns the head into the one that the service gets.
    fn upload(&mut self, client: Client, forward: &Forward) -> pingora::Result<Upload> {
        self.head.set_version(Version::HTTP_11);
        let (policy, auth_policy) = (self.rules.upstream_request, &self.rules.auth_policy);
        policy.rewrite_request(
            &mut self.head,
            self.version,
            forward,
            &self.ids,
            auth_policy,
            client,
        )?;
        let mut bytes = BytesMut::with_capacity(HEAD_ROOM);
        request_head::write(&self.head, &mut bytes);
        Ok(Upload::new(bytes, self.body))
    }

    /// Returns true where the service is asked to close its connection after the response.
    fn closes_service(&self) -> bool {
        self.head.headers.contains_key(header::CONNECTION)
    }

    /// Such a client may leave the body out once it has a response.
    fn expects_continue(&self) -> bool {
        self.head.headers.contains_key(header::EXPECT)
    }

    /// Returns what every response of the sidecar says beside its content.
    fn common_response_headers(&self, received: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
        AuthProxy::common_response_headers(&self.rules, &self.ids, received)
    }

    fn for_response<'a>(&self, echo: Option<&'a (HeaderName, HeaderValue)>) -> ResponseTo<'a> {
        ResponseTo {
            is_http_1_0: self.version == Version::HTTP_10,
            is_head: self.head.method == Method::HEAD,
            keep_alive: self.keep_alive,
            echo,
        }
    }
}

impl FastPath {
    /// Returns how long each side may be silent until the response begins.
    fn limits(&self, admitted: &Admitted) -> Limits {
        Limits {
            body: self.proxy.request_body_timeout,
            response: self.proxy.upstream.read_timeout(),
            token: match admitted.forward.kind {
                RequestKind::EventStream => self.end_of_token(admitted),
                _ => None,
            },
        }
    }

    /// Sets the limits of the rest: an event stream may be silent, and ends with its token.
    fn response_began(&self, admitted: &Admitted, head: &ResponseHead, limits: &mut Limits) {
        self.proxy
            .metrics
            .service_responded(admitted.decided.elapsed());
        let may_be_silent = admitted.forward.kind == RequestKind::EventStream;
        limits.token = None;
        if head.is_event_stream {
            limits.token = self.end_of_token(admitted);
            limits.response = limits.response.filter(|_| !may_be_silent);
        } else if may_be_silent {
            // The client may take its time with the part that came, too.
            let both = limits.response.zip(self.proxy.send_timeout);
            limits.response = both.map(|(read, send)| read.saturating_add(send));
        }
    }

    fn end_of_token(&self, admitted: &Admitted) -> Option<tokio::time::Instant> {
        let ends_at = admitted
            .forward
            .ends_at
            .filter(|_| self.proxy.end_streams)?;
        let left = u64::try_from(ends_at.saturating_sub(unix_now())).unwrap_or_default();
        tokio::time::Instant::now().checked_add(Duration::from_secs(left))
    }

    /// Keeps the service's connection for another request, if nothing speaks against it.
    fn keep(&self, connected: Connected, request: &Request, upload: &Upload, download: &Download) {
        if upload.is_sent() && !request.closes_service() && download.leaves_connection_usable() {
            self.pool
                .put(connected.stream, connected.pool_key, Instant::now());
        }
    }

    /// Counts the request, logs it, and remembers a rejection.
    fn record(&self, request: &Request, client: Client, progress: &Progress) {
        let outcome = progress.outcome;
        let logger = &self.proxy.request_logger;
        let received = OnceCell::new();
        logger.request_ended(outcome, || {
            let head = received.get_or_init(|| request_head::read_again(&request.raw));
            let head = head.as_deref();
            RequestRecord {
                request: head.map(|head| (&head.method, head.raw_path())),
                client: client.address.map(|peer| match head {
                    Some(head) => logger.trusted_proxies.client(peer, &head.headers),
                    None => peer,
                }),
                status: progress
                    .status
                    .or(progress.download.head().map(|head| head.status)),
                upstream: self
                    .proxy
                    .failed_upstream_addr(outcome, progress.service.as_ref()),
                cause: progress.cause.clone(),
                request_id: request.ids.request_id().cloned(),
                trace_id: head.and_then(|head| request.ids.trace_id(&head.headers)),
            }
        });
    }
}
