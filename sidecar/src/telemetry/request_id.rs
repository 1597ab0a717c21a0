//! The ids by which the lines about one request are found: its id and its trace, as far as they
//! are asked for. Without being asked this costs nothing, and a `traceparent` passes untouched.

use aws_lc_rs::rand;
use contract::http::trace::{REQUEST_ID, RequestId, TRACEPARENT, TraceId, new_traceparent};
use http::{HeaderMap, HeaderName, HeaderValue};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CorrelationPolicy {
    /// Each request gets an id, unless it brings one.
    pub(crate) request_ids: bool,
    /// A trace begins here, unless the request belongs to one.
    pub(crate) start_traces: bool,
}

/// The ids of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestIds {
    request_id: Option<RequestId>,
    /// Of a trace that begins here.
    traceparent: Option<HeaderValue>,
}

impl CorrelationPolicy {
    pub(crate) fn ids(self, headers: &HeaderMap) -> RequestIds {
        let request_id = self
            .request_ids
            .then(|| RequestId::received(headers).unwrap_or_else(|| RequestId::new(random())));
        let traceparent = (self.start_traces && TraceId::received(headers).is_none())
            // Its lower half is random enough for the span.
            .then(|| new_traceparent(random(), random() as u64));
        RequestIds {
            request_id,
            traceparent,
        }
    }
}

impl RequestIds {
    pub(crate) const fn request_id(&self) -> Option<&RequestId> {
        self.request_id.as_ref()
    }

    /// Of the trace that began here, or that the request with these headers came with.
    pub(crate) fn trace_id(&self, headers: &HeaderMap) -> Option<TraceId> {
        match &self.traceparent {
            Some(traceparent) => {
                TraceId::received(&HeaderMap::from_iter([(TRACEPARENT, traceparent.clone())]))
            }
            None => TraceId::received(headers),
        }
    }

    /// What the answer repeats.
    pub(crate) fn echo(&self) -> Option<(HeaderName, HeaderValue)> {
        let id = self.request_id.as_ref()?;
        Some((REQUEST_ID, id.value().clone()))
    }

    /// What the service is to see.
    pub(crate) fn to_send(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let traceparent = self.traceparent.clone();
        let traceparent = traceparent.map(|traceparent| (TRACEPARENT, traceparent));
        self.echo().into_iter().chain(traceparent)
    }
}

/// Unique, not secret: should the source fail, a zero does no harm.
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
    fn nothing_is_marked_unasked() {
        let ids = CorrelationPolicy::default().ids(&headers(REQUEST_ID, "mine"));
        assert_eq!(ids, RequestIds::default());
        assert_eq!(ids.to_send().count(), 0);
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(ids.trace_id(&headers(TRACEPARENT, trace)).is_some());
    }

    #[test]
    fn an_id_is_taken_over_or_made_and_echoed_either_way() {
        let correlation = CorrelationPolicy {
            request_ids: true,
            ..CorrelationPolicy::default()
        };
        let id = |headers| correlation.ids(&headers).echo().map(|(_, id)| id);
        let mine = id(headers(REQUEST_ID, "mine"));
        assert_eq!(mine, Some(HeaderValue::from_static("mine")));
        let made = [id(headers(REQUEST_ID, "not mine")), id(HeaderMap::new())];
        assert!(made.iter().flatten().all(|id| id.len() == 32));
        assert_ne!(made[0], made[1]);
    }

    #[test]
    fn a_trace_begins_only_where_there_is_none() {
        let correlation = CorrelationPolicy {
            start_traces: true,
            ..CorrelationPolicy::default()
        };
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(
            correlation.ids(&headers(TRACEPARENT, trace)),
            RequestIds::default()
        );
        let none = HeaderMap::new();
        let started = correlation.ids(&none);
        assert!(started.trace_id(&none).is_some());
        assert_eq!(started.to_send().count(), 1);
        assert_eq!(started.echo(), None);
    }
}
