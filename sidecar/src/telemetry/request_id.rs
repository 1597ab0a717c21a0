//! The request id and the trace id, which connect the log lines of one request. Both are optional;
//! a received `traceparent` is never changed, unless a span of this program takes its place.

use aws_lc_rs::rand;
use http::{HeaderMap, HeaderName, HeaderValue};
use postern_http::trace::{REQUEST_ID, RequestId, TRACEPARENT, TraceId};

/// Ids of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestIds {
    request_id: Option<RequestId>,
    /// Set if the trace goes on with a span of this program.
    traceparent: Option<HeaderValue>,
    /// True if the trace starts here: a received `tracestate` then belongs to another trace (W3C Trace
    /// Context §4.3).
    pub(crate) begins_trace: bool,
}

impl RequestIds {
    /// Reads the ids of a request, and creates a missing request id with `--request-id`.
    pub(crate) fn from_headers(headers: &HeaderMap, has_request_id: bool) -> Self {
        let mut ids = Self::default();
        if has_request_id {
            let received = RequestId::received(headers);
            ids.request_id = Some(received.unwrap_or_else(|| RequestId::new(random())));
        }
        ids
    }

    pub(crate) const fn request_id(&self) -> Option<&RequestId> {
        self.request_id.as_ref()
    }

    /// Replaces the trace's parent in `headers` by a span of this program.
    pub(crate) fn continue_trace(&mut self, traceparent: HeaderValue, headers: &HeaderMap) {
        self.traceparent = Some(traceparent);
        self.begins_trace = self.trace_id(headers) != TraceId::received(headers);
    }

    /// Returns the id of the trace that started here, or of the trace in `headers`.
    pub(crate) fn trace_id(&self, headers: &HeaderMap) -> Option<TraceId> {
        match &self.traceparent {
            Some(traceparent) => TraceId::from_traceparent(traceparent),
            None => TraceId::received(headers),
        }
    }

    /// Returns the header of the response.
    pub(crate) fn echo(&self) -> Option<(HeaderName, HeaderValue)> {
        Some((REQUEST_ID, self.request_id.as_ref()?.value().clone()))
    }

    /// Returns the headers for the service.
    pub(crate) fn to_send(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let traceparent = self.traceparent.clone();
        self.echo()
            .into_iter()
            .chain(traceparent.map(|value| (TRACEPARENT, value)))
    }
}

/// Returns random bytes that are unique, not secret: zeros after a failure are harmless.
fn random() -> u128 {
    let mut bytes = [0; 16];
    let _ = rand::fill(&mut bytes);
    u128::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn ids_are_created_only_if_configured() {
        let ids = RequestIds::from_headers(&headers(REQUEST_ID, "mine"), false);
        assert_eq!(ids, RequestIds::default());
        assert_eq!(ids.to_send().count(), 0);
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(ids.trace_id(&headers(TRACEPARENT, trace)).is_some());
    }

    #[test]
    fn an_id_is_kept_or_created_and_always_echoed() {
        let id = |headers| {
            RequestIds::from_headers(&headers, true)
                .echo()
                .map(|(_, id)| id)
        };
        let mine = id(headers(REQUEST_ID, "mine"));
        assert_eq!(mine, Some(HeaderValue::from_static("mine")));
        let made = [id(headers(REQUEST_ID, "not mine")), id(HeaderMap::new())];
        assert!(made.iter().flatten().all(|id| id.len() == 32));
        assert_ne!(made[0], made[1]);
    }
}
