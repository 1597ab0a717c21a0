//! One request: its head, its authorization and its progress.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use contract::http::framing::Body;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};
use pingora::http::RequestHeader;
use pingora::protocols::l4::socket::SocketAddr as ServiceAddress;

use super::Connected;
use super::download::Download;
use super::request_head::{self, RequestBlock};
use super::response_head::ResponseTo;
use super::upload::Upload;
use crate::auth::authorize::Forward;
use crate::config::live::Rules;
use crate::downstream::limits::InFlightPermit;
use crate::headers::forwarded::Client;
use crate::proxy::phases::AuthProxy;
use crate::telemetry::outcome::Outcome;
use crate::telemetry::request_id::RequestIds;
use crate::telemetry::request_span::{RequestSpan, SpanHead};
use crate::upstream::{Sent, Tries};

/// Enough for most heads to the service.
const HEAD_ROOM: usize = 1024;

/// A request as received, until its head is rewritten for the service.
pub(super) struct Request {
    pub(super) head: Box<RequestHeader>,
    pub(super) raw: Bytes,
    pub(super) version: Version,
    /// The client's connection may carry another request.
    pub(super) keep_alive: bool,
    pub(super) body: Body,
    pub(super) rules: Arc<Rules>,
    pub(super) ids: RequestIds,
    pub(super) began: Instant,
    pub(super) span: RequestSpan,
}

/// An authorized request, for the service.
pub(super) struct Admitted {
    pub(super) forward: Forward,
    pub(super) decided: Instant,
    pub(super) _permit: InFlightPermit,
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
        }
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
    pub(super) fn new(block: RequestBlock, proxy: &AuthProxy, client: Client) -> Self {
        let RequestBlock {
            head,
            raw,
            body,
            keep_alive,
        } = block;
        let began = Instant::now();
        let mut ids = proxy.correlation.ids(&head.headers);
        let received = SpanHead {
            method: &head.method,
            target: head.raw_path(),
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
            body,
            version: head.version,
            head,
            raw,
            keep_alive,
        }
    }

    /// Turns the head into the service's.
    pub(super) fn upload(&mut self, client: Client, forward: &Forward) -> pingora::Result<Upload> {
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
        if self.body == Body::Chunked {
            // In the one spelling that every service reads alike.
            let coding = HeaderValue::from_static("chunked");
            self.head.insert_header(header::TRANSFER_ENCODING, coding)?;
        }
        let mut bytes = BytesMut::with_capacity(HEAD_ROOM);
        request_head::write(&self.head, &mut bytes);
        Ok(Upload::new(bytes, self.body))
    }

    /// Returns true if the connection to the service closes after the response.
    pub(super) fn closes_service(&self) -> bool {
        self.head.headers.contains_key(header::CONNECTION)
    }

    /// Returns true if the client may omit the body after a response.
    pub(super) fn expects_continue(&self) -> bool {
        self.head.headers.contains_key(header::EXPECT)
    }

    /// Returns the headers of every response of the sidecar.
    pub(super) fn common_response_headers(
        &self,
        received: &HeaderMap,
    ) -> Vec<(HeaderName, HeaderValue)> {
        AuthProxy::common_response_headers(&self.rules, &self.ids, received)
    }

    pub(super) fn for_response<'a>(
        &self,
        echo: Option<&'a (HeaderName, HeaderValue)>,
    ) -> ResponseTo<'a> {
        ResponseTo {
            is_http_1_0: self.version == Version::HTTP_10,
            is_head: self.head.method == Method::HEAD,
            keep_alive: self.keep_alive,
            echo,
        }
    }
}
