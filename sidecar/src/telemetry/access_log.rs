//! What may be told about one request when it is over, in the log and on the status page.

use std::net::IpAddr;

use contract::http::trace::{RequestId, TraceId};
use http::Method;
pub(crate) use runtime::access_log::{AccessLog, LoggedPath};
use runtime::access_log::{Entry, short};

use crate::telemetry::outcome::Outcome;

/// What is said about one request.
#[derive(Default)]
pub(crate) struct RequestRecord<'a> {
    /// Method and target, where a request could be read at all.
    pub(crate) request: Option<(&'a Method, &'a [u8])>,
    /// Who asked, through the proxies that are trusted.
    pub(crate) client: Option<IpAddr>,
    /// Of the answer, if there was one.
    pub(crate) status: Option<u16>,
    /// The address at which the service was at fault.
    pub(crate) upstream: Option<String>,
    /// What made the service, or the way to it, fail.
    pub(crate) cause: Option<String>,
    /// Where request ids are asked for.
    pub(crate) request_id: Option<RequestId>,
    /// Where the request belongs to a trace.
    pub(crate) trace_id: Option<TraceId>,
}

impl<'a> RequestRecord<'a> {
    /// The method, cut: a client may make one up.
    pub(crate) fn method(&self) -> Option<&'a str> {
        self.request.map(|(method, _)| short(method.as_str()))
    }

    /// The path as it may be shown.
    pub(crate) fn path(&self) -> Option<LoggedPath<'a>> {
        self.request.map(|(_, target)| LoggedPath(target))
    }

    /// Writes it to the log.
    pub(crate) fn write(&self, outcome: Outcome) {
        let entry = Entry {
            outcome: outcome.as_str(),
            reason: outcome.reason(),
            status: self.status,
            method: self.method(),
            path: self.path(),
            client: self.client,
            request_id: self.request_id.as_ref().map(|id| id as _),
            trace_id: self.trace_id.as_ref().map(|id| id as _),
            upstream: self.upstream.as_deref(),
            cause: self.cause.as_deref(),
        };
        entry.write();
    }
}
