//! The outermost layer: what is told about each request when it is over, and what every answer says
//! whatever it is about – who may read it (CORS), and its id.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use contract::http::cors::AllowedOrigins;
use contract::http::trace::{REQUEST_ID, RequestId, TraceId};
use contract::rejection::Rejection;
use http::{HeaderMap, Method, Uri};
use runtime::access_log::{AccessLog, Entry, LoggedPath, short};
use runtime::client_address::TrustedProxies;

use super::client_ip::client_of;
use crate::metrics::Metrics;
use crate::random;

/// Clones report to the same places.
#[derive(Debug, Clone)]
pub(crate) struct Reports {
    pub(crate) access_log: AccessLog,
    pub(crate) request_ids: bool,
    pub(crate) allowed_origins: AllowedOrigins,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) metrics: Metrics,
}

/// The ids under which other lines, of this program and of others, tell of the same request.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestIds {
    pub(crate) request_id: Option<RequestId>,
    pub(crate) trace_id: Option<TraceId>,
}

/// What is to be said about a request once its answer is known.
struct Asked {
    method: Method,
    uri: Uri,
    client: IpAddr,
    ids: RequestIds,
}

impl Reports {
    /// For tests of other things.
    #[cfg(test)]
    pub(crate) fn silent() -> Self {
        Self {
            access_log: AccessLog::Off,
            request_ids: false,
            allowed_origins: AllowedOrigins::default(),
            trusted_proxies: TrustedProxies::default(),
            metrics: Metrics::default(),
        }
    }

    fn request_id(&self, headers: &HeaderMap) -> Option<RequestId> {
        self.request_ids.then(|| {
            RequestId::received(headers).unwrap_or_else(|| RequestId::new(random::number()))
        })
    }

    fn ended(&self, asked: &Asked, response: &Response) {
        let rejection = response.extensions().get::<Rejection>();
        if let Some(rejection) = rejection {
            self.metrics.refused(*rejection);
        }
        if !self.access_log.wants(rejection.is_some()) {
            return;
        }
        Entry {
            outcome: outcome(rejection.is_some()),
            reason: rejection.map(|rejection| rejection.reason()),
            status: Some(response.status().as_u16()),
            method: Some(short(asked.method.as_str())),
            path: Some(LoggedPath(asked.uri.path().as_bytes())),
            client: Some(asked.client),
            request_id: asked.ids.request_id.as_ref().map(|id| id as _),
            trace_id: asked.ids.trace_id.as_ref().map(|id| id as _),
            ..Entry::default()
        }
        .write();
    }

    /// What never became a request was answered so.
    pub(crate) fn refused_unread(&self, rejection: Rejection, client: IpAddr) {
        self.metrics.refused(rejection);
        if self.access_log.wants(true) {
            Entry {
                outcome: outcome(true),
                reason: Some(rejection.reason()),
                status: Some(rejection.status().as_u16()),
                client: Some(client),
                ..Entry::default()
            }
            .write();
        }
    }
}

const fn outcome(refused: bool) -> &'static str {
    if refused { "refused" } else { "answered" }
}

pub(crate) async fn report(
    State(reports): State<Reports>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let asked = Asked {
        method: request.method().clone(),
        uri: request.uri().clone(),
        client: client_of(&reports.trusted_proxies, request.extensions(), headers),
        ids: RequestIds {
            request_id: reports.request_id(headers),
            trace_id: TraceId::received(headers),
        },
    };
    let cors = reports.allowed_origins.answer_fields(headers);
    request.extensions_mut().insert(asked.ids.clone());
    let mut response = next.run(request).await;
    // Beside what an answer varies by already.
    for (name, value) in cors {
        response.headers_mut().append(name, value);
    }
    if let Some(id) = &asked.ids.request_id {
        response
            .headers_mut()
            .insert(REQUEST_ID, id.value().clone());
    }
    reports.ended(&asked, &response);
    response
}
