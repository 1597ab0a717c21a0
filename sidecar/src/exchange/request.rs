//! A request: its head as it was received, and its progress.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use http::{HeaderName, HeaderValue, Method, StatusCode, Version, header};
use pingora::protocols::l4::socket::SocketAddr as ServiceAddress;
use postern_http::framing::body::BodyReader;
use postern_process::clock::unix_now;
use postern_transport::net::shares::Holder;
use postern_transport::traces::request_span::{Received, RequestSpan};

use super::client_head::ClientHead;
use super::download::Download;
use super::downstream::Outgoing;
use super::response_head::{Handshake, ResponseTo};
use crate::config::live::Rules;
use crate::decision::forward::Forward;
use crate::decision::strip_token;
use crate::exchange::app::App;
use crate::identity::client::Client;
use crate::telemetry::outcome::Outcome;
use crate::telemetry::request_id::RequestIds;
use crate::upstream::Tries;
use crate::upstream::connections::conduct::Reuse;
use crate::upstream::service::StreamHead;
use crate::upstream::service_request::ServiceRequest;
use postern_http::request::kind::RequestKind;
use postern_http::request::received::ReceivedHead;

/// A request as received.
pub(super) struct Request<'a> {
    pub(super) client: &'a Client,
    pub(super) head: ReceivedHead,
    pub(super) rules: Arc<Rules>,
    pub(super) ids: RequestIds,
    pub(super) began: Instant,
    pub(super) span: RequestSpan,
    /// The field with the nonce of the client's next proof.
    pub(super) nonce: Option<(HeaderName, HeaderValue)>,
    /// True if the connection to the service closes after the response.
    pub(super) closes_service: bool,
    /// True if the client has its 100 from the sidecar, in place of the service.
    is_continued: bool,
}

/// Progress of a request.
pub(super) struct Progress {
    pub(super) tries: Tries,
    /// The start of the service's time: when the permit was taken, or the held body was received.
    pub(super) forwarded: Instant,
    /// The address of the service that was tried last.
    pub(super) service: Option<ServiceAddress>,
    pub(super) download: Download,
    pub(super) outcome: Outcome,
    pub(super) cause: Option<String>,
    /// True if `h2` has reset the stream, which was counted and logged then.
    pub(super) was_counted: bool,
    /// Status and length of the body of the sidecar's own response.
    pub(super) own: Option<(u16, u64)>,
    /// The part of the request that the client has not sent yet.
    pub(super) rest: BodyReader,
    /// Time of the service up to the head of its response.
    pub(super) upstream_duration: Option<Duration>,
    /// Set once the whole response is sent.
    pub(super) ended: Option<Instant>,
}

impl Progress {
    /// Begins with a request that is forwarded `now`, and of which `rest` is still to come.
    pub(super) fn new(rest: BodyReader, now: Instant) -> Self {
        Self {
            rest,
            forwarded: now,
            tries: Tries::default(),
            service: None,
            download: Download::default(),
            outcome: Outcome::Aborted,
            cause: None,
            was_counted: false,
            own: None,
            upstream_duration: None,
            ended: None,
        }
    }

    /// Returns the status of the response and the length of its body, if one was sent.
    pub(super) fn sent(&self) -> Option<(u16, u64)> {
        match self.own {
            None => Some((
                self.download.head?.status.as_u16(),
                self.download.body_bytes,
            )),
            own => own,
        }
    }
}

impl<'a> Request<'a> {
    pub(super) fn new(head: ReceivedHead, app: &App, client: &'a Client) -> Self {
        let began = Instant::now();
        let mut ids = RequestIds::from_headers(&head.headers, app.request_ids);
        let begun = RequestSpan::begin(&Received {
            method: head.method.as_str(),
            target: head.target(),
            version: head.version,
            over_tls: client.tls,
            route: None,
            headers: &head.headers,
        });
        if let Some(traceparent) = begun.traceparent {
            ids.continue_trace(traceparent, &head.headers);
        }
        let rules = app.rules.load();
        Self {
            client,
            began,
            span: begun.span,
            nonce: rules.auth_policy.next_nonce(&head, unix_now()),
            rules,
            ids,
            head,
            closes_service: false,
            is_continued: false,
        }
    }

    /// Returns the head for a service of HTTP/2.
    pub(super) fn stream_head(
        &self,
        over_tls: bool,
        forward: &Forward,
    ) -> pingora::Result<StreamHead> {
        Ok(StreamHead {
            request: self.for_service(forward).stream_head(over_tls)?,
            is_whole: self.head.body.is_done(),
        })
    }

    fn for_service<'r>(&'r self, forward: &'r Forward) -> ServiceRequest<'r> {
        ServiceRequest {
            received: &self.head,
            forward,
            client: self.client,
            ids: &self.ids,
            auth_policy: &self.rules.auth_policy,
            policy: self.rules.upstream_request,
            is_continued: self.is_continued,
        }
    }

    /// Returns the head for a service of HTTP/1.1.
    pub(super) fn http_1_head(&mut self, forward: &Forward, reuse: Reuse) -> BytesMut {
        let (head, closes_service) = self.for_service(forward).http_1_head(reuse);
        self.closes_service = closes_service;
        head
    }

    /// Sends the 100 that a client expects before a body that is held.
    pub(super) fn send_continue(&mut self, out: &mut Outgoing) {
        self.is_continued = self.head.expects_continue();
        // HTTP/1.0 has no interim responses (RFC 9110 §15.2).
        if self.is_continued && self.head.version != Version::HTTP_10 {
            let proceed = ClientHead {
                version: self.head.version,
                status: StatusCode::CONTINUE,
                reason: "Continue",
                connection: None,
            };
            proceed.write(out, 0, |_| false);
        }
    }

    /// Returns the client's IP, through trusted proxies.
    pub(super) fn client_ip(&self, app: &App) -> Option<IpAddr> {
        Some(
            app.trusted_proxies
                .client(self.client.address?, &self.head.headers),
        )
    }

    /// Returns the client, which holds what no user holds.
    pub(super) fn holder(&self, app: &App) -> Holder {
        Holder::for_address(self.client_ip(app))
    }

    /// Returns the user, or else the client's connection: those who may spoil one to the service for
    /// themselves. Many clients have one address, and a proxy has many clients.
    pub(super) fn holder_of_connection(&self, app: &App, forward: &Forward) -> Holder {
        match &forward.verified {
            Some(verified) => verified.holder,
            None => Holder::on_connection(self.client.connection, self.client_ip(app)),
        }
    }

    pub(super) fn for_response(&self, kind: RequestKind) -> ResponseTo<'_> {
        let interceptor = &self.rules.auth_policy.interceptor;
        let (sources, headers) = (interceptor.sources(), &self.head.headers);
        let handshake = if kind == RequestKind::WebSocket
            && let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY)
        {
            let offers_token = strip_token::offers_token(sources, headers);
            Some(Handshake::new(key.as_bytes(), offers_token))
        } else {
            None
        };
        ResponseTo {
            version: self.head.version,
            kind,
            is_head: self.head.method == Method::HEAD,
            keep_alive: self.head.keep_alive,
            handshake,
            echo: self.ids.request_id(),
            verifies_proofs: sources.takes_proofs,
            nonce: self.nonce.as_ref().map(|(_, nonce)| nonce),
            exposes_nonce: self.nonce.is_some()
                && interceptor.allowed_origins().allowed(headers).is_some(),
        }
    }
}
