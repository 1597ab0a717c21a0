//! The one way of every request: to a service of HTTP/1.x or HTTP/2, and back to a client of either.

pub(crate) mod app;
mod client_head;
mod copy;
mod deadlines;
mod decide;
mod download;
pub(crate) mod downstream;
pub(crate) mod record;
mod release;
mod request;
pub(crate) mod response;
pub(crate) mod response_head;
pub(crate) mod transfer;
pub(crate) mod upload;

use std::sync::Arc;
use std::time::{Duration, Instant};

use h2::Reason;
use http::{Method, Version};
use pingora::ErrorSource;
use postern_contract::rejection::Rejection;
use postern_http::methods::certain_method;

use self::app::App;
use self::copy::{End, Exchange};
use self::deadlines::{Deadlines, ends_with_token, hold};
use self::decide::Action;
use self::downstream::Downstream;
use self::release::Suspect;
use self::request::{Progress, Request};
use self::response::LocalResponse;
use self::upload::Upload;
use crate::decision::forward::Forward;
use crate::identity::client::Client;
use crate::telemetry::metrics::Counted;
use crate::telemetry::outcome::Outcome;
use crate::upstream::connections::conduct::Conduct;
use crate::upstream::connections::{Connected, Connections, NextRequest};
use crate::upstream::errors;
use crate::upstream::service::Service;
use postern_http::request::kind::RequestKind;
use postern_http::request::received::ReceivedHead;

/// Server of requests.
pub(crate) struct Exchanges {
    pub(crate) app: Arc<App>,
    connections: Arc<Connections>,
}

impl Exchanges {
    /// Creates the server; `max_idle` connections to the service may wait `idle_timeout` for another request.
    pub(crate) fn new(app: Arc<App>, max_idle: usize, idle_timeout: Duration) -> Self {
        let conduct = Conduct::new(&app.metrics);
        Self {
            app,
            connections: Arc::new(Connections::new(conduct, max_idle, idle_timeout)),
        }
    }

    /// Serves a request of `downstream`, from its decision to its record; returns the time of its end if its
    /// connection of HTTP/1.x may carry another request.
    pub(crate) async fn serve(
        &self,
        head: ReceivedHead,
        downstream: &mut impl Downstream,
        client: &Client,
    ) -> Option<Instant> {
        let app = &*self.app;
        let request = Request::new(head, app, client);
        let _counted = Counted::among(&app.metrics.requests_in_flight);
        let (decision, rule) = app.decide(&request).await;
        let decided = Instant::now();
        app.metrics
            .requests
            .auth_duration_seconds
            .observe(decided.saturating_duration_since(request.began));
        let action = app.act_on(decision, &request, decided).await;
        let mut serving = Serving {
            exchanges: self,
            downstream,
            // The service's time begins here: the request may have waited for a permit before.
            progress: Progress::new(request.head.body, Instant::now()),
            request,
            is_recorded: false,
        };
        serving.progress.cause = rule.map(|rule| format!("rule {rule}"));
        let (keep_alive, forward) = match action {
            Action::Forward(forward, _permit) => {
                serving.progress.outcome = forward.outcome();
                (serving.carry(&forward).await, Some(forward))
            }
            Action::Respond(outcome, response, forward) => {
                serving.progress.outcome = outcome;
                (serving.decline(response).await, forward)
            }
        };
        let ended = serving.record(forward.as_ref());
        keep_alive.then_some(ended)
    }
}

/// A request while it is served.
struct Serving<'a, C> {
    exchanges: &'a Exchanges,
    downstream: &'a mut C,
    request: Request<'a>,
    progress: Progress,
    is_recorded: bool,
}

/// Records a request that is dropped on its way, as when its connection makes room for another one.
impl<C> Drop for Serving<'_, C> {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.record(None);
        }
    }
}

impl<'a, C: Downstream> Serving<'a, C> {
    fn app(&self) -> &'a App {
        &self.exchanges.app
    }

    /// Responds to a request that is not forwarded.
    async fn decline(&mut self, response: LocalResponse) -> bool {
        let (app, head) = (self.app(), &self.request.head);
        let is_http_2 = head.version == Version::HTTP_2;
        // A client that waits for a 100 may still send its body, or leave it out (RFC 9110 §10.1.1):
        // the beginning of its next request is uncertain.
        let may_omit = head.has_body() && head.expects_continue();
        let keep_alive = head.keep_alive && !may_omit;
        // A user whose share is full must not get a permit in the name of an address.
        let is_busy = self.progress.outcome == Outcome::Rejected(Rejection::ServerBusy);
        let holder = (!is_busy).then(|| self.request.holder(app));
        let sent = self.respond(response, keep_alive);
        if !is_http_2 {
            return sent.await;
        }
        // One connection could hold a hundred responses in memory, so one that waits takes a permit. Boxed:
        // connections of HTTP/1.x, of which there are more, need no room for this future.
        let sent = Box::pin(app.in_flight.while_waiting(holder, sent)).await;
        // The record of a request that is rejected as busy warns, with its user.
        if sent.is_none() && !is_busy {
            app.in_flight.warn(self.request.client_ip(app), || None);
        }
        sent.unwrap_or_default()
    }

    /// Sends a response of the sidecar, after interim ones of the service; returns true if the
    /// connection of HTTP/1.x stays.
    async fn respond(&mut self, response: LocalResponse, keep_alive: bool) -> bool {
        let keep_alive = keep_alive && !response.must_close() && !self.app().drain.has_begun();
        let (request, progress) = (&self.request, &mut self.progress);
        let response = response
            .with(request.rules.auth_policy.cors_fields(&request.head))
            .with(request.ids.echo())
            .with(request.nonce.clone())
            .to(&request.head);
        let (out, rest) = (&mut progress.download.out, progress.rest);
        progress.own =
            Some(response.write(&request.head.method, request.head.version, keep_alive, out));
        // In this order: a client may stop sending once it has read the response.
        self.downstream.send(out).await && self.downstream.discard(rest).await && keep_alive
    }

    /// Carries a request to the service and the response back; returns true if the connection of
    /// HTTP/1.x stays.
    async fn carry(&mut self, forward: &Forward) -> bool {
        let mut upload = Upload::new(self.request.head.body, &self.request.rules);
        let carried = self.exchange(forward, &mut upload).await;
        // Before `fail`, whose response has to be followed by this rest.
        self.progress.rest = upload.body;
        if let Err(error) = carried {
            self.fail(&error).await;
            return false;
        }
        let is_received = upload.is_received();
        let service_stopped_reading = upload.has_failed() && !upload.is_tunnel;
        // The client may still be sending: a close now would reset its response (RFC 9112 §9.6).
        if !is_received && service_stopped_reading {
            self.downstream.discard(self.progress.rest).await;
        }
        match self.progress.download.head {
            Some(head) => is_received && head.keep_client,
            None => false,
        }
    }

    /// Runs until the whole response is sent to the client.
    ///
    /// The connection of a try may have carried a body that the service has perhaps left unread. Such a try
    /// ends in one of three ways, any other one in the first or the last:
    /// - Its response is passed on, and may leave a doubt about that body (`release`).
    /// - Its response is one to a misread request, and the request is idempotent. The response is dropped
    ///   and the body suspect: the next try, without a body before it, decides.
    /// - It fails, and leaves a doubt. If the tries repeat it, no body is before it either.
    async fn exchange(&mut self, forward: &Forward, upload: &mut Upload) -> pingora::Result<()> {
        self.hold_body(forward, upload).await?;
        let holder = self.request.holder_of_connection(self.app(), forward);
        let head = &self.request.head;
        // `None` where the service may carry out another method: then no retry is safe.
        let method = certain_method(&head.method, &head.headers).cloned();
        let is_idempotent = method.as_ref().is_some_and(Method::is_idempotent);
        let mut reuse = Some(NextRequest {
            holder,
            is_idempotent,
        });
        // Set by a try whose response may belong to a body before it: the next try decides.
        let mut suspect = None;
        loop {
            // A body that was framed for HTTP/1.1 cannot become the data of a stream.
            let only_in_http_1 = forward.kind == RequestKind::WebSocket || upload.is_framed();
            let mut connected = self.connect(forward, reuse, only_in_http_1).await?;
            if connected.behind.is_some() {
                // For the next try.
                reuse = None;
            }
            let copied = self.copy(&mut connected, forward, upload, is_idempotent);
            match copied.await {
                Ok(End::Done) => {
                    self.release(connected, upload, holder, suspect);
                    return Ok(());
                }
                Ok(End::Misread(status)) => {
                    suspect = connected.behind.map(|last| Suspect(last, status));
                }
                Err(error) => {
                    self.note_failure(&connected, &error);
                    if !self.repeats(&error, upload, method.as_ref(), connected.is_reused) {
                        // A reset of the client is passed on with its code.
                        let reason = match error.esource() {
                            ErrorSource::Downstream => errors::reset_reason(&error),
                            _ => None,
                        };
                        connected.service.end(reason).await;
                        return Err(error);
                    }
                }
            }
            self.progress.download.restart();
            upload.rewind();
        }
    }

    /// Receives the body before a connection is taken: a slow client holds none of the service's.
    async fn hold_body(&mut self, forward: &Forward, upload: &mut Upload) -> pingora::Result<()> {
        let app = self.app();
        if forward.is_held(&self.request.head, app.upstream.speaks_http_1()) {
            let out = &mut self.progress.download.out;
            self.request.send_continue(out);
            hold(self.downstream, upload, out, app.request_body_timeout).await?;
            self.progress.forwarded = Instant::now();
        }
        Ok(())
    }

    /// Copies the request and its response, or the tunnel that it opens, on one connection to the service.
    async fn copy(
        &mut self,
        connected: &mut Connected,
        forward: &Forward,
        upload: &mut Upload,
        is_idempotent: bool,
    ) -> pingora::Result<End> {
        let app = self.app();
        let to_http_1 = matches!(connected.service, Service::Http1(_));
        if to_http_1 {
            let conduct = &self.exchanges.connections.conduct;
            upload.begin(|cannot_be_a_request| {
                self.request
                    .http_1_head(forward, conduct.reuse(cannot_be_a_request))
            });
        } else {
            upload.begin_stream();
        }
        let mut exchange = Exchange {
            app,
            forward,
            deadlines: Deadlines::new(app, &self.request.head, forward, to_http_1),
            request: self.request.for_response(forward.kind),
            client: &mut *self.downstream,
            service: &mut connected.service,
            upload,
            progress: &mut self.progress,
            is_rest: false,
            may_be_misread: is_idempotent && connected.behind.is_some(),
        };
        exchange.run().await
    }

    /// Returns true if a request that failed is sent again.
    fn repeats(
        &mut self,
        error: &pingora::Error,
        upload: &Upload,
        method: Option<&Method>,
        is_reused: bool,
    ) -> bool {
        // Once a part of the response is here, the service may have carried the request out.
        let may_repeat = upload.is_repeatable && !self.progress.download.has_begun();
        let tries = &mut self.progress.tries;
        may_repeat && tries.after_sending(error, method, is_reused, Instant::now())
    }

    /// Takes an open connection to the service, or opens one; retries for a second while the service
    /// restarts.
    async fn connect(
        &mut self,
        forward: &Forward,
        reuse: Option<NextRequest>,
        only_in_http_1: bool,
    ) -> pingora::Result<Connected> {
        let (exchanges, progress) = (self.exchanges, &mut self.progress);
        let head = |over_tls| self.request.stream_head(over_tls, forward);
        loop {
            if let Some(pause) = progress.tries.pause() {
                tokio::time::sleep(pause).await;
            }
            let connecting = exchanges.connections.connect(
                &exchanges.app.upstream,
                reuse,
                only_in_http_1,
                &head,
                &mut progress.service,
            );
            let error = match connecting.await {
                // Pingora leaves the source unset; `Downstream` is an error of the client's head.
                Err(error) if *error.esource() != ErrorSource::Downstream => error.into_up(),
                connected => return connected,
            };
            if !progress.tries.after_connecting(&error, Instant::now()) {
                return Err(error);
            }
        }
    }

    /// Responds to a failed request, unless its response has begun.
    async fn fail(&mut self, error: &pingora::Error) {
        let progress = &mut self.progress;
        progress.cause = Some(errors::log_cause(error));
        // A stream that ends with its token is no failure: its outcome stays.
        if ends_with_token(error) {
            self.exchanges.app.metrics.streams_expired.inc();
            return;
        }
        let rejection = errors::rejection_of(error);
        progress.outcome = rejection.map_or(Outcome::Aborted, Outcome::Rejected);
        progress.was_counted = errors::was_reset_for_framing(error);
        let Some(rejection) = rejection else {
            return;
        };
        // No second response can follow a head: the client has to see that this one is cut off.
        if progress.download.head.is_some() {
            let reason = match error.esource() {
                ErrorSource::Downstream => Some(Reason::CANCEL),
                _ => errors::reset_reason(error),
            };
            return self
                .downstream
                .abandon(&mut progress.download.out, reason)
                .await;
        }
        self.respond(LocalResponse::rejection(rejection), false)
            .await;
    }
}
