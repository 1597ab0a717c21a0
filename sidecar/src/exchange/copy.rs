//! The bytes of one request and its response between a client and the service, or of the tunnel that it
//! opens.

use std::future::poll_fn;
use std::ops::ControlFlow::{self, Break, Continue};
use std::task::{Context, Poll};
use std::time::Instant;

use http::StatusCode;

use super::deadlines::Deadlines;
use super::downstream::Downstream;
use super::request::Progress;
use super::response_head::ResponseTo;
use super::transfer;
use super::upload::Upload;
use crate::decision::forward::Forward;
use crate::exchange::app::App;
use crate::upstream::connections::conduct::is_of_misread_request;
use crate::upstream::service::Service;
use postern_http::request::kind::RequestKind;

/// The end of an exchange that has not failed.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// The whole response was sent, and the request unless the service took no more of it.
    Done,
    /// The response may be none to this request: with this status, and nothing of it sent.
    Misread(StatusCode),
}

/// An exchange of one request and its response.
pub(super) struct Exchange<'a, C> {
    pub(super) app: &'a App,
    pub(super) forward: &'a Forward,
    pub(super) client: &'a mut C,
    pub(super) service: &'a mut Service,
    pub(super) upload: &'a mut Upload,
    pub(super) progress: &'a mut Progress,
    pub(super) request: ResponseTo<'a>,
    pub(super) deadlines: Deadlines,
    /// True after the response, while the rest of the request is sent.
    pub(super) is_rest: bool,
    /// True if a response that a spoiled request would get is not passed on.
    pub(super) may_be_misread: bool,
}

impl<C: Downstream> Exchange<'_, C> {
    /// Runs until the last byte is sent to the client, and the request to the service.
    pub(super) async fn run(&mut self) -> pingora::Result<End> {
        poll_fn(|cx| match self.poll(cx) {
            // The whole response was sent: only the connection ends.
            Poll::Ready(_) if self.is_rest => Poll::Ready(Ok(End::Done)),
            polled => polled,
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<End>> {
        loop {
            // First what the client has sent: head and body leave in one write, and a service that
            // responds to the head alone has the body by then.
            let received = self.poll_client(cx)?;
            let moved = self.upload.poll_send(self.service, cx);
            // A client that has its response must not hold the service by its body.
            if moved && !self.is_rest {
                self.deadlines.response_until = None;
            }
            // There is room for more of the body.
            let uploaded = moved && !self.upload.is_received();
            // After a failed upload too: the response may explain why the service stopped reading.
            let responded = match self.poll_service(cx)? {
                Continue(responded) => responded,
                Break(end) => return Poll::Ready(Ok(end)),
            };
            let out = &mut self.progress.download.out;
            let sent = self.client.poll_send(out, cx)?;
            if self.upload.is_tunnel && (out.is_sent() || self.upload.is_sent()) {
                // One side has closed it, and the other one has all of its bytes.
                return Poll::Ready(Ok(End::Done));
            }
            if out.is_sent() {
                // Nothing is left to move: the service has everything, or takes no more.
                if self.upload.is_sent() || self.upload.has_failed() {
                    return Poll::Ready(Ok(End::Done));
                }
                // Once only: it restarts the timeout of the body.
                if !std::mem::replace(&mut self.is_rest, true) {
                    self.deadlines.begin_rest();
                }
                self.deadlines.await_end();
            }
            // Bytes that are here already wake no task.
            let has_more =
                received && self.upload.has_more || responded && self.progress.download.has_more();
            if has_more {
                transfer::give_way(cx);
            }
            // Only a turn that moved nothing has left a waker with each side.
            if has_more || !(uploaded || received || responded || sent) {
                return self.deadlines.poll(self.client.timer(), cx).map(Err);
            }
        }
    }

    /// Reads the body; where no more of it is read, detects that the client leaves.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> pingora::Result<bool> {
        let is_received = self.upload.is_received();
        if !is_received && self.upload.has_room() {
            return self.deadlines.poll_body(self.client, self.upload, cx);
        }
        // The service is the slow side now, or the body is complete: the client is not timed.
        self.deadlines.body_until = None;
        match self.client.poll_left(is_received, cx) {
            Poll::Ready(why) => Err(why),
            Poll::Pending => Ok(false),
        }
    }

    /// Reads the response; continues with true if a part of it has come.
    fn poll_service(&mut self, cx: &mut Context<'_>) -> pingora::Result<ControlFlow<End, bool>> {
        let download = &mut self.progress.download;
        let had_head = download.head.is_some();
        if !download.has_room() {
            self.hold_response(cx);
            return Ok(Continue(false));
        }
        // With the latest state: a drain may have begun, and an unread body ends the connection.
        let request = ResponseTo {
            keep_alive: self.request.keep_alive
                && self.upload.is_received()
                && !self.app.drain.has_begun(),
            ..self.request
        };
        let waiting = download.out.waiting();
        let Poll::Ready(received) = download.poll_receive(self.service, request, cx) else {
            if had_head {
                self.deadlines.await_response();
            } else {
                self.await_head();
            }
            return Ok(Continue(false));
        };
        if download.head.is_some() {
            self.deadlines.response_until = None;
        }
        // A long body is no longer here from its beginning.
        if self.may_be_misread
            && self.upload.is_repeatable
            && !had_head
            && let Some(head) = download.head
            && is_of_misread_request(head.status)
        {
            // It was queued in this turn, so nothing of it has left yet.
            download.out.take_back(waiting);
            return Ok(Break(End::Misread(head.status)));
        }
        if !had_head {
            self.response_began();
        }
        // Last: the head may have arrived in the same read as the error.
        match (received, &self.service) {
            (Ok(()), _) => Ok(Continue(true)),
            // The response says more about its stream.
            (Err(error), Service::Http2(_)) => Err(error),
            (Err(error), Service::Http1(_)) => Err(self.upload.failure().unwrap_or(error)),
        }
    }

    /// Leaves the response with the service while the client takes no more of it.
    fn hold_response(&mut self, cx: &mut Context<'_>) {
        // Frames of a shared connection must not pile up in `h2` while this client is slow.
        self.service.take_in(cx);
        if self.progress.download.head.is_none() {
            self.await_head();
        // The client is the slow side: the service's timeout begins with the next read.
        } else if !self.is_rest {
            self.deadlines.response_until = None;
        }
    }

    /// Waits for the final head, for which interim ones give no more time. The service cannot respond to a
    /// request that has not arrived; a call may last, but not without any response.
    fn await_head(&mut self) {
        if self.request.kind == RequestKind::Grpc || !self.upload.waits_for_client() {
            self.deadlines.await_response();
        }
    }

    /// Records the final head, if it is here.
    fn response_began(&mut self) {
        let Some(head) = &self.progress.download.head else {
            return;
        };
        let after = Instant::now().saturating_duration_since(self.progress.forwarded);
        self.progress.upstream_duration = Some(after);
        self.deadlines.response_began(self.app, self.forward, head);
        // Both directions become a tunnel at once: bytes that the client sends after its head are no HTTP.
        if head.opens_tunnel() {
            self.upload.open_tunnel();
            self.client.open_tunnel();
        } else {
            self.app
                .metrics
                .requests
                .upstream_duration_seconds
                .observe(after);
        }
    }
}
