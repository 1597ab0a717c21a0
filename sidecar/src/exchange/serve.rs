//! The way of one request, from its decision to its record.

use std::time::Instant;

use h2::Reason;
use http::Version;
use pingora::ErrorSource;
use wire::rejection::Rejection;

use super::Exchanges;
use super::held;
use super::one_exchange::{Exchange, Failure, Waits};
use super::request::{Authorized, Progress, Request};
use super::side::ClientSide;
use super::upload::Upload;
use crate::exchange::action::Action;
use crate::exchange::response::LocalResponse;
use crate::identity::forwarded::Client;
use crate::telemetry::outcome::Outcome;
use crate::upstream::errors;

/// A request that has ended.
pub(crate) struct Served {
    /// True if the connection of HTTP/1.x may carry another one.
    pub(crate) keep_alive: bool,
    pub(crate) ended: Instant,
}

impl Exchanges {
    /// Serves a request of `side` to its end.
    pub(crate) async fn serve(
        &self,
        request: &mut Request,
        side: &mut impl ClientSide,
        client: &Client,
    ) -> Served {
        let proxy = &self.proxy;
        let _counted = proxy.metrics.request_began();
        let decision = self.decide(request, client).await;
        let decided = Instant::now();
        proxy
            .metrics
            .decided(decided.saturating_duration_since(request.began));
        let mut progress = Progress::new(request.head.body, decided);
        let mut forwarded = None;
        let holder = || request.client(proxy, client);
        let action = proxy.act_on(decision, holder, &request.rules.auth_policy, decided);
        let keep_alive = match action {
            Action::Forward(forward, permit) => {
                progress.outcome = forward.outcome();
                let authorized = Authorized {
                    forward,
                    _permit: permit,
                };
                let keep_alive = self
                    .carry(request, &authorized, side, client, &mut progress)
                    .await;
                forwarded = Some(authorized.forward);
                keep_alive
            }
            Action::Respond(outcome, response) => {
                progress.outcome = outcome;
                let response = response.challenging(request.rules.auth_policy.resource.as_deref());
                self.decline(request, response, side, client, &mut progress)
                    .await
            }
        };
        self.record(request, client, forwarded.as_ref(), &progress);
        Served {
            keep_alive,
            ended: progress.ended(),
        }
    }

    /// Responds to a request that is not forwarded.
    async fn decline(
        &self,
        request: &Request,
        response: LocalResponse,
        side: &mut impl ClientSide,
        client: &Client,
        progress: &mut Progress,
    ) -> bool {
        let body = request.head.body;
        let keep_alive = request.head.keep_alive && (body.is_done() || !request.expects_continue());
        // A user with its share gets no permit as an address.
        let is_busy = progress.outcome == Outcome::Rejected(Rejection::ServerBusy);
        let holder = (!is_busy).then(|| request.client(&self.proxy, client));
        let sent = self.respond(request, response, keep_alive, side, progress);
        if request.head.version != Version::HTTP_2 {
            return sent.await;
        }
        // One connection could hold a hundred responses in memory. Boxed: those of HTTP/1.x, of
        // which there are more, have no need of it.
        let sent = Box::pin(self.proxy.in_flight.while_waiting(holder, sent));
        sent.await.unwrap_or_default()
    }

    /// Sends a response of the sidecar, behind interim ones of the service; returns true if the
    /// connection of HTTP/1.x stays.
    async fn respond(
        &self,
        request: &Request,
        response: LocalResponse,
        keep_alive: bool,
        side: &mut impl ClientSide,
        progress: &mut Progress,
    ) -> bool {
        let response = response.with(request.common_response_headers());
        let keep_alive = keep_alive && !response.must_close() && !self.proxy.draining.is_on();
        let head = &request.head;
        let response = response.for_call(&head.method, head.version, &head.headers);
        progress.status = Some(response.status().as_u16());
        progress.own_bytes = response.body_bytes(&head.method);
        let (out, rest) = (&mut progress.download.out, progress.rest);
        response.write(&head.method, head.version, keep_alive, out);
        side.finish(out, rest).await && keep_alive
    }

    /// Carries a request to the service and the response back.
    async fn carry(
        &self,
        request: &mut Request,
        authorized: &Authorized,
        side: &mut impl ClientSide,
        client: &Client,
        progress: &mut Progress,
    ) -> bool {
        let mut upload = Upload::new(request.head.body, &request.rules);
        let carried = self
            .exchange(request, authorized, side, client, &mut upload, progress)
            .await;
        let (is_received, is_cut_off) = (
            upload.is_received(),
            upload.has_failed() && !upload.is_tunnel(),
        );
        progress.rest = upload.into_rest();
        if let Err(failure) = carried {
            self.fail(request, failure, side, progress).await;
            return false;
        }
        if !is_received && is_cut_off {
            side.discard(progress.rest).await;
        }
        let head = progress.download.head();
        is_received && head.is_some_and(|head| head.keep_client)
    }

    /// Runs the exchange until the whole response is sent to the client.
    async fn exchange(
        &self,
        request: &mut Request,
        authorized: &Authorized,
        side: &mut impl ClientSide,
        client: &Client,
        upload: &mut Upload,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let (echo, kind) = (request.ids.echo(), authorized.forward.kind);
        let to_http_1 = self.proxy.upstream.speaks_http_1();
        if !upload.is_received() && request.is_held(&authorized.forward, to_http_1) {
            held::receive(side, upload, self.proxy.request_body_timeout).await?;
            progress.forwarded = Instant::now();
        }
        loop {
            let mut connected = self.connect(kind, progress).await?;
            let forward = &authorized.forward;
            let begun = request.begin(upload, &mut connected.service, client, forward);
            let mut exchange = Exchange {
                client: &mut *side,
                service: &mut connected.service,
                upload,
                download: &mut progress.download,
                draining: &self.proxy.draining,
                request: request.for_response(kind, echo.as_ref()),
                limits: self.limits(request, authorized),
                waits: Waits::default(),
                is_rest: false,
            };
            let (forwarded, upstream_duration) =
                (progress.forwarded, &mut progress.upstream_duration);
            let on_head = |head: &_, limits: &mut _| {
                let after = forwarded.elapsed();
                self.response_began(authorized, head, after, limits);
                *upstream_duration = Some(after);
            };
            let ended = match begun {
                Ok(()) => exchange.run(on_head).await,
                Err(error) => Err(error.into()),
            };
            match ended {
                Ok(()) => {
                    progress.end();
                    self.keep(connected, request, upload, progress);
                    return Ok(());
                }
                Err(Failure::Error(error))
                    if progress.may_retry(&error, request, &connected, upload) =>
                {
                    progress.download.restart();
                    upload.rewind();
                }
                Err(failure) => {
                    if let Failure::Error(error) = &failure
                        && *error.esource() == ErrorSource::Downstream
                    {
                        connected.service.end(errors::reset_reason(error));
                    }
                    return Err(failure);
                }
            }
        }
    }

    fn stream_ended(&self, why: &str, progress: &mut Progress) {
        self.proxy.metrics.stream_ended();
        progress.cause = Some(format!("the token of the stream {why}"));
    }

    /// Responds to a failed request, unless its response has begun.
    async fn fail(
        &self,
        request: &Request,
        failure: Failure,
        side: &mut impl ClientSide,
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
        progress.is_reported = errors::was_reset_for_framing(&error);
        let Some(rejection) = rejection else {
            return;
        };
        if progress.download.head().is_some() {
            let reason = match error.esource() {
                ErrorSource::Downstream => Some(Reason::CANCEL),
                _ => errors::reset_reason(&error),
            };
            return side.abandon(&mut progress.download.out, reason).await;
        }
        let response = LocalResponse::rejection(rejection);
        self.respond(request, response, false, side, progress).await;
    }
}
