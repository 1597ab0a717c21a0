//! The requests of one connection, one after the other.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Instant;

use bytes::{Buf, BytesMut};
use runtime::net::listener::CLIENT_IDLE;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use wire::http::framing::body::BodyReader;
use wire::rejection::Rejection;

use super::FastPath;
use super::exchange::{BODY_READ, Exchange, Failure, Waits};
use super::head_search::HeadSearch;
use super::request::{Authorized, Progress, Request};
use super::timer::Timer;
use super::upload::Upload;
use crate::downstream::stream::ClientStream;
use crate::headers::forwarded::Client;
use crate::proxy::phases::decision::Action;
use crate::proxy::response::{DRAIN_TIMEOUT, LocalResponse};
use crate::request::received::{self, ReceivedHead};
use crate::telemetry::outcome::Outcome;
use crate::upstream::errors;

/// Most heads arrive in one read.
const HEAD_READ: usize = 4 * 1024;
/// A head of this length is parsed only once its end has arrived.
const LONG_HEAD: usize = 2 * HEAD_READ;

/// One connection of a client.
pub(super) struct Connection<'a> {
    path: &'a FastPath,
    stream: &'a mut ClientStream,
    client: Client,
    /// Received bytes that were not used yet.
    received: BytesMut,
    head_search: HeadSearch,
    timer: Timer,
    /// The end of the last request.
    idle_since: Instant,
}

impl<'a> Connection<'a> {
    pub(super) fn new(path: &'a FastPath, stream: &'a mut ClientStream, client: Client) -> Self {
        Self {
            path,
            stream,
            client,
            received: BytesMut::new(),
            head_search: HeadSearch::default(),
            timer: Timer::default(),
            idle_since: Instant::now(),
        }
    }

    pub(super) async fn serve(mut self) {
        while let Some(taken) = self.next_head().await {
            let head = match taken {
                Ok(head) => head,
                Err(rejection) => return self.stream.reject_head(rejection),
            };
            let request = Request::new(head, &self.path.proxy, &self.client);
            if !self.serve_request(request).await {
                return;
            }
        }
    }

    /// Waits for the head of a request; returns `None` if no other follows.
    async fn next_head(&mut self) -> Option<Result<ReceivedHead, Rejection>> {
        loop {
            if !self.received.is_empty()
                && self.head_search.may_be_whole(&self.received, LONG_HEAD)
                && let Some(taken) = received::take(&mut self.received).transpose()
            {
                self.head_search = HeadSearch::default();
                return Some(taken);
            }
            if self.read().await.ok()? == 0 {
                return None;
            }
        }
    }

    /// Reads available bytes. Between two requests it waits for a limited time; empty lines may
    /// have arrived then.
    async fn read(&mut self) -> io::Result<usize> {
        let Self {
            path,
            stream,
            received,
            timer,
            idle_since,
            ..
        } = self;
        let is_idle = !stream.is_within_head();
        let idle_until = tokio::time::Instant::from_std(*idle_since) + CLIENT_IDLE;
        let mut closing = pin!(path.closing.cancelled());
        poll_fn(|cx| {
            let mut bytes = [MaybeUninit::uninit(); HEAD_READ];
            let mut buffer = ReadBuf::uninit(&mut bytes);
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

    /// Serves a request to its end; returns false where the connection ends with it.
    async fn serve_request(&mut self, mut request: Request) -> bool {
        let proxy = &self.path.proxy;
        let _counted = proxy.metrics.request_began();
        self.stream.set_handling(true);
        let decision = self.path.decide(&request, &self.client).await;
        let decided = Instant::now();
        proxy
            .metrics
            .decided(decided.saturating_duration_since(request.began));
        let mut progress = Progress::new();
        let mut forwarded = None;
        let client = || request.client(proxy, &self.client);
        let action = proxy.act_on(decision, client, &request.rules.auth_policy, decided);
        let keep_alive = match action {
            Action::Forward(forward, permit) => {
                progress.outcome = forward.outcome();
                let authorized = Authorized {
                    forward,
                    decided,
                    _permit: permit,
                };
                let keep_alive = self.carry(&mut request, &authorized, &mut progress).await;
                forwarded = Some(authorized.forward);
                keep_alive
            }
            Action::Respond(outcome, response) => {
                progress.outcome = outcome;
                let response = response
                    .challenging(request.rules.auth_policy.resource.as_deref())
                    .with(request.common_response_headers());
                let body = request.head.body;
                let keep_alive =
                    request.head.keep_alive && (body.is_done() || !request.expects_continue());
                self.respond(&response, &request, keep_alive, body, &mut progress)
                    .await
            }
        };
        self.idle_since = progress.ended();
        self.path
            .record(&mut request, &self.client, forwarded.as_ref(), &progress);
        self.stream.set_handling(false);
        let head = &request.head;
        let had_large_buffer = !head.body.is_done() || head.raw.len() > HEAD_READ;
        if had_large_buffer && self.received.is_empty() {
            self.received = BytesMut::new();
        }
        keep_alive
    }

    /// Sends a response of the sidecar, and reads the rest of the request.
    async fn respond(
        &mut self,
        response: &LocalResponse,
        request: &Request,
        keep_alive: bool,
        mut body: BodyReader,
        progress: &mut Progress,
    ) -> bool {
        let keep_alive = keep_alive && !response.must_close() && !self.path.proxy.draining.is_on();
        progress.status = Some(response.status().as_u16());
        progress.own_bytes = response.body_bytes(&request.head.method);
        let bytes = response.to_http_1(&request.head.method, keep_alive);
        let before = progress.download.take_unsent();
        let sent = async {
            self.stream.write_all(&before).await?;
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await
        };
        if sent.await.is_err() {
            return false;
        }
        self.stream.waits_for_rest();
        let rest = self.read_rest(&mut body);
        let is_read = matches!(tokio::time::timeout(DRAIN_TIMEOUT, rest).await, Ok(Ok(())));
        keep_alive && is_read
    }

    /// Reads and drops the rest of a body: a client that is still sending reads the response only
    /// after it.
    async fn read_rest(&mut self, body: &mut BodyReader) -> io::Result<()> {
        while !body.is_done() {
            let piece = body.next_piece(&self.received).map_err(io::Error::other)?;
            self.received.advance(piece.skipped + piece.data);
            if self.received.is_empty() && !body.is_done() {
                self.received.reserve(BODY_READ);
                if self.stream.read_buf(&mut self.received).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        Ok(())
    }

    /// Carries a request to the service and the response back; returns false where the connection
    /// ends with it.
    async fn carry(
        &mut self,
        request: &mut Request,
        authorized: &Authorized,
        progress: &mut Progress,
    ) -> bool {
        let mut upload = Upload::new(request.head.body);
        if let Err(failure) = self
            .exchange(request, authorized, &mut upload, progress)
            .await
        {
            self.fail(request, failure, upload.into_rest(), progress)
                .await;
            return false;
        }
        let is_received = upload.is_received();
        if !is_received && upload.has_failed() && !upload.is_tunnel() {
            let mut rest = upload.into_rest();
            self.stream.waits_for_rest();
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, self.read_rest(&mut rest)).await;
        }
        let head = progress.download.head();
        is_received && head.is_some_and(|head| head.keep_client)
    }

    /// Runs the exchange until the whole response is sent to the client.
    async fn exchange(
        &mut self,
        request: &mut Request,
        authorized: &Authorized,
        upload: &mut Upload,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let echo = request.ids.echo();
        loop {
            let kind = authorized.forward.kind;
            let mut connected = self.path.connect(kind, progress).await?;
            let begun = request.begin(
                upload,
                &mut connected.service,
                &self.client,
                &authorized.forward,
            );
            let mut exchange = Exchange {
                client: self.stream,
                received: &mut self.received,
                service: &mut connected.service,
                upload,
                download: &mut progress.download,
                timer: &mut self.timer,
                draining: &self.path.proxy.draining,
                request: request.for_response(kind, echo.as_ref()),
                limits: self.path.limits(authorized),
                waits: Waits::default(),
                is_rest: false,
            };
            let upstream_duration = &mut progress.upstream_duration;
            let on_head = |head: &_, limits: &mut _| {
                *upstream_duration = Some(self.path.response_began(authorized, head, limits));
            };
            let ended = match begun {
                Ok(()) => exchange.run(on_head).await,
                Err(error) => Err(error.into()),
            };
            match ended {
                Ok(()) => {
                    progress.end();
                    self.path.keep(connected, request, upload, progress);
                    return Ok(());
                }
                Err(Failure::Error(error))
                    if progress.may_retry(&error, request, &connected, upload) =>
                {
                    progress.download.restart();
                    upload.rewind();
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    fn stream_ended(&self, why: &str, progress: &mut Progress) {
        self.path.proxy.metrics.stream_ended();
        progress.cause = Some(format!("the token of the stream {why}"));
    }

    /// Responds to a failed request, unless its response has begun. `rest` of its body was not
    /// read.
    async fn fail(
        &mut self,
        request: &Request,
        failure: Failure,
        rest: BodyReader,
        progress: &mut Progress,
    ) {
        let error = match failure {
            Failure::Error(error) => error,
            Failure::TokenExpired => return self.stream_ended("has expired", progress),
            Failure::TokenRevoked => return self.stream_ended("was revoked", progress),
        };
        let rejection = errors::rejection_of(&error);
        progress.outcome = rejection.map_or(Outcome::Aborted, Outcome::Rejected);
        progress.cause = Some(errors::log_cause(&error));
        let Some(rejection) = rejection else {
            return;
        };
        if progress.download.head().is_some() {
            // The part of the response that arrived whole before the error.
            let unsent = progress.download.take_unsent();
            let _ = self.stream.write_all(&unsent).await;
            let _ = self.stream.flush().await;
            return;
        }
        let response = LocalResponse::rejection(rejection).with(request.common_response_headers());
        self.respond(&response, request, false, rest, progress)
            .await;
    }
}
