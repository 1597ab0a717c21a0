//! One request: its head, its authorization and its progress.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Version, header};
use pingora::protocols::l4::socket::SocketAddr as ServiceAddress;
use runtime::net::shares::{Holder, Share};
use wire::http::framing::Body;

use super::Connected;
use super::download::Download;
use super::request_head::ReceivedHead;
use super::response_head::ResponseTo;
use super::service_head::ForwardedHead;
use super::upload::Upload;
use crate::auth::authorize::Forward;
use crate::config::live::Rules;
use crate::headers::forwarded::Client;
use crate::headers::service_head::ServiceHead;
use crate::proxy::phases::AuthProxy;
use crate::telemetry::outcome::Outcome;
use crate::telemetry::request_id::RequestIds;
use crate::telemetry::request_span::{RequestSpan, SpanHead};
use crate::upstream::{Sent, Tries};

/// A request as received.
pub(super) struct Request {
    pub(super) head: ReceivedHead,
    pub(super) rules: Arc<Rules>,
    pub(super) ids: RequestIds,
    pub(super) began: Instant,
    pub(super) span: RequestSpan,
    /// True if the connection to the service closes after the response.
    pub(super) closes_service: bool,
}

/// An authorized request, for the service.
pub(super) struct Authorized {
    pub(super) forward: Forward,
    pub(super) decided: Instant,
    pub(super) _permit: Share,
}

/// Progress of a request.
pub(super) struct Progress {
    pub(super) tries: Tries,
    /// The last address tried.
    pub(super) service: Option<ServiceAddress>,
    pub(super) download: Download,
    pub(super) outcome: Outcome,
    pub(super) cause: Option<String>,
    /// Status of the sidecar's own response.
    pub(super) status: Option<u16>,
    /// Length of the body of the sidecar's own response.
    pub(super) own_bytes: u64,
    /// Time of the service up to the head of its response.
    pub(super) upstream_duration: Option<Duration>,
    /// Set once the whole response is sent.
    ended: Option<Instant>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            tries: Tries::default(),
            service: None,
            download: Download::default(),
            outcome: Outcome::Aborted,
            cause: None,
            status: None,
            own_bytes: 0,
            upstream_duration: None,
            ended: None,
        }
    }

    /// Ends the request now.
    pub(super) fn end(&mut self) {
        self.ended = Some(Instant::now());
    }

    /// Returns the end of the request, which is now unless it has ended.
    pub(super) fn ended(&self) -> Instant {
        self.ended.unwrap_or_else(Instant::now)
    }

    /// Returns the status of the response, if one was sent.
    pub(super) fn sent_status(&self) -> Option<u16> {
        let head = self.download.head();
        self.status.or(head.map(|head| head.status))
    }

    /// Returns the length of the response's body.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.own_bytes + self.download.body_bytes()
    }

    /// Returns true if the request may be sent to the service again.
    pub(super) fn may_retry(
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
    pub(super) fn new(head: ReceivedHead, proxy: &AuthProxy, client: &Client) -> Self {
        let began = Instant::now();
        let mut ids = RequestIds::of(&head.headers, proxy.request_ids);
        let received = SpanHead {
            method: &head.method,
            target: head.target(),
            version: head.version,
            headers: &head.headers,
            tls: client.tls,
        };
        let span = RequestSpan::begin(received, &mut ids);
        Self {
            began,
            span,
            rules: proxy.rules.load(),
            ids,
            head,
            closes_service: false,
        }
    }

    /// Creates the upload, which begins with the service's head.
    pub(super) fn upload(&mut self, client: &Client, forward: &Forward) -> pingora::Result<Upload> {
        let mut head = ForwardedHead::new(&self.head);
        let (policy, auth_policy) = (self.rules.upstream_request, &self.rules.auth_policy);
        let received = self.head.version;
        policy.rewrite_request(&mut head, received, forward, &self.ids, auth_policy, client)?;
        if self.head.body == Body::Chunked {
            // In lower case and alone: every service reads this spelling alike.
            let coding = HeaderValue::from_static("chunked");
            head.set(Bytes::from_static(b"Transfer-Encoding"), coding)?;
        }
        self.closes_service = head.contains(&header::CONNECTION);
        Ok(Upload::new(head.to_bytes(), self.head.body))
    }

    /// Returns the client, which holds what no user holds.
    pub(super) fn client(&self, proxy: &AuthProxy, client: &Client) -> Holder {
        Holder::at(proxy.client_ip(client.address, &self.head.headers))
    }

    /// Returns true if the client may omit the body after a response.
    pub(super) fn expects_continue(&self) -> bool {
        self.head.headers.contains_key(header::EXPECT)
    }

    /// Returns the headers of every response of the sidecar.
    pub(super) fn common_response_headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        AuthProxy::common_response_headers(&self.rules, &self.ids, &self.head.headers)
    }

    pub(super) fn for_response<'a>(
        &self,
        echo: Option<&'a (HeaderName, HeaderValue)>,
    ) -> ResponseTo<'a> {
        ResponseTo {
            is_http_1_0: self.head.version == Version::HTTP_10,
            is_head: self.head.method == Method::HEAD,
            keep_alive: self.head.keep_alive,
            echo,
        }
    }
}
