//! One request and its response between a client and the service, or the tunnel that it opens.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use pingora::{Error, ErrorType};
use tokio::time::Instant;

use super::download::Download;
use super::pace::Pace;
use super::response_head::{ResponseHead, ResponseTo};
use super::service::Service;
use super::side::ClientSide;
use super::upload::Upload;
use crate::background::Draining;
use crate::exchange::auth_proxy::StreamEnd;
use crate::exchange::response::DRAIN_TIMEOUT;
use crate::request::kind::RequestKind;

/// Timeouts of each side, and the deadline of the exchange.
#[derive(Default)]
pub(super) struct Limits {
    /// Pace of the request's body; `None` for one that may last.
    pub(super) pace: Option<Pace>,
    /// Timeout between two parts of the request's body.
    pub(super) body: Option<Duration>,
    /// Timeout between two parts of the response.
    pub(super) response: Option<Duration>,
    /// Expiry of the token that opened a stream.
    pub(super) token: Option<Instant>,
    /// Its revocation.
    pub(super) revocation: Option<StreamEnd>,
}

/// The reason why an exchange was not completed.
pub(super) enum Failure {
    Error(Box<Error>),
    /// The token of the stream has expired.
    TokenExpired,
    /// It was revoked.
    TokenRevoked,
}

impl From<Box<Error>> for Failure {
    fn from(error: Box<Error>) -> Self {
        Self::Error(error)
    }
}

/// An exchange of one request and its response.
pub(super) struct Exchange<'a, C> {
    pub(super) client: &'a mut C,
    pub(super) service: &'a mut Service,
    pub(super) upload: &'a mut Upload,
    pub(super) download: &'a mut Download,
    pub(super) draining: &'a Draining,
    pub(super) request: ResponseTo<'a>,
    pub(super) limits: Limits,
    pub(super) waits: Waits,
    /// True after the response, while the rest of the request is sent.
    pub(super) is_rest: bool,
}

/// Ends of the running timeouts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waits {
    body: Option<Instant>,
    response: Option<Instant>,
}

impl<C: ClientSide> Exchange<'_, C> {
    /// Runs until the last byte is sent to the client, and the request to the service. `on_head`
    /// gets the final head, and may change the limits for the rest.
    pub(super) async fn run(
        &mut self,
        mut on_head: impl FnMut(&ResponseHead, &mut Limits),
    ) -> Result<(), Failure> {
        poll_fn(|cx| match self.poll(&mut on_head, cx) {
            // The whole response was sent: only the connection ends.
            Poll::Ready(_) if self.is_rest => Poll::Ready(Ok(())),
            polled => polled,
        })
        .await
    }

    fn poll(
        &mut self,
        on_head: &mut impl FnMut(&ResponseHead, &mut Limits),
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        loop {
            // First what the client has sent: head and body leave in one write, and a service that
            // responds to the head alone has the body by then.
            let received = self.poll_client(cx)?;
            let uploaded = self.poll_upload(cx)?;
            let responded = self.poll_service(on_head, cx)?;
            let sent = self.client.poll_send(&mut self.download.out, cx)?;
            if self.upload.is_tunnel() && (self.download.out.is_sent() || self.upload.is_sent()) {
                // One side has closed it, and the other one has all of its bytes.
                return Poll::Ready(Ok(()));
            }
            if self.download.out.is_sent() {
                if self.upload.is_over() {
                    return Poll::Ready(Ok(()));
                }
                self.begin_rest();
            }
            if !(uploaded || received || responded || sent) {
                return self.poll_deadlines(cx).map(Err);
            }
        }
    }

    /// Gives the rest of the request a shorter time: the service may still read it.
    fn begin_rest(&mut self) {
        if !std::mem::replace(&mut self.is_rest, true) {
            let body = self.limits.body.unwrap_or(DRAIN_TIMEOUT);
            self.limits.body = Some(body.min(DRAIN_TIMEOUT));
            self.limits.token = None;
            self.waits.body = None;
        }
        start(&mut self.waits.response, Some(DRAIN_TIMEOUT));
    }

    /// Sends the waiting bytes to the service; returns true if there is room for more of the body.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> pingora::Result<bool> {
        match self.upload.poll_send(self.service, cx) {
            Ok(moved) => {
                if moved {
                    self.waits.response = None;
                }
                Ok(moved && !self.upload.is_received())
            }
            // The service may have sent a response before it stopped reading.
            Err(error) => {
                self.upload.give_up(error);
                Ok(true)
            }
        }
    }

    /// Reads the body; after its end, detects that the client leaves.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> pingora::Result<bool> {
        let is_received = self.upload.is_received();
        if is_received && self.upload.is_tunnel() {
            self.waits.body = None;
            return Ok(false);
        }
        if is_received || !self.upload.has_room() {
            self.waits.body = None;
            return match self.client.poll_left(is_received, cx) {
                Poll::Ready(why) => Err(why),
                Poll::Pending => Ok(false),
            };
        }
        let before = self.upload.received();
        match self.client.poll_receive(self.upload, cx) {
            Poll::Ready(Ok(())) => {
                if let Some(pace) = &mut self.limits.pace {
                    pace.received(self.upload.received() - before);
                }
                self.waits.body = None;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => {
                let Limits { pace, body, .. } = &mut self.limits;
                let left = pace.as_mut().map(Pace::left);
                start(&mut self.waits.body, left.into_iter().chain(*body).min());
                Ok(false)
            }
        }
    }

    /// Reads the response.
    fn poll_service(
        &mut self,
        on_head: &mut impl FnMut(&ResponseHead, &mut Limits),
        cx: &mut Context<'_>,
    ) -> Result<bool, Failure> {
        if !self.download.has_room() {
            if !self.is_rest {
                self.waits.response = None;
            }
            return Ok(false);
        }
        let had_head = self.download.head().is_some();
        let request = ResponseTo {
            keep_alive: self.request.keep_alive
                && self.upload.is_received()
                && !self.draining.is_on(),
            ..self.request
        };
        match self.download.poll_receive(self.service, request, cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => {
                if let Some(head) = self.download.head().filter(|_| !had_head) {
                    on_head(head, &mut self.limits);
                }
                let failure = match self.service {
                    Service::Http1(_) => self.upload.failure(),
                    // The response says more about its stream.
                    Service::Http2(_) => None,
                };
                return Err(failure.unwrap_or(error).into());
            }
            Poll::Pending => {
                // The service cannot respond to a request that has not arrived. A call may last, but
                // not without any response.
                let is_call = self.request.kind == RequestKind::Grpc;
                if had_head || is_call || !self.upload.waits_for_client() {
                    start(&mut self.waits.response, self.limits.response);
                }
                return Ok(false);
            }
        }
        self.waits.response = None;
        if let Some(head) = self.download.head().filter(|_| !had_head) {
            on_head(head, &mut self.limits);
            if head.opens_tunnel() {
                self.upload.open_tunnel();
                self.client.open_tunnel();
                self.limits.body = None;
                self.limits.pace = None;
            }
        }
        Ok(true)
    }

    /// Returns the first timeout that has passed.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        if let Some(revocation) = &mut self.limits.revocation
            && revocation.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Failure::TokenRevoked);
        }
        let token = self.limits.token;
        let first = [self.waits.body, self.waits.response, token];
        let Some(first) = first.into_iter().flatten().min() else {
            return Poll::Pending;
        };
        std::task::ready!(self.client.timer().poll_until(cx, first));
        let timed_out = |new: fn(ErrorType) -> Box<Error>| new(ErrorType::ReadTimedout).into();
        Poll::Ready(match first {
            first if token == Some(first) => Failure::TokenExpired,
            first if self.waits.body == Some(first) => timed_out(Error::new_down),
            _ => timed_out(Error::new_up),
        })
    }
}

/// Starts a timeout unless it is running.
pub(super) fn start(wait: &mut Option<Instant>, limit: Option<Duration>) {
    if wait.is_none() {
        *wait = limit.and_then(|limit| Instant::now().checked_add(limit));
    }
}
