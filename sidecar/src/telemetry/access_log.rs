//! Record of a finished request, for the access log and its span.

use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use runtime::logs::access_log::{AccessLine, short};
pub(crate) use runtime::logs::access_log::{AccessLog, LoggedPath};
use wire::api::user_details::CurrentUserDetails;
use wire::http::trace::{RequestId, TraceId};

use crate::telemetry::outcome::Completion;

/// The part of a user that access lines name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum LoggedUser {
    /// Nothing.
    #[default]
    Off,
    /// The user's id.
    Id,
    /// The user's account.
    Account,
}

impl LoggedUser {
    /// Returns the name of the user that `details` reads, which costs time.
    pub(crate) fn name(
        self,
        details: impl FnOnce() -> Option<CurrentUserDetails>,
    ) -> Option<String> {
        match self {
            Self::Off => None,
            Self::Id => details()?.id,
            Self::Account => details()?.account,
        }
    }
}

/// Record of one finished request, beside its [`Completion`].
#[derive(Default)]
pub(crate) struct RequestRecord<'a> {
    /// Method and target; `None` for a request that could not be parsed.
    pub(crate) request: Option<(&'a Method, &'a [u8])>,
    /// Client IP, through trusted proxies.
    pub(crate) client: Option<IpAddr>,
    /// The user of the verified token, with `--access-log-user`.
    pub(crate) user: Option<String>,
    /// The configured issuer of the token, where there may be several.
    pub(crate) issuer: Option<&'a str>,
    /// The service's part of the duration.
    pub(crate) upstream_duration: Option<Duration>,
    /// Length of the response's body.
    pub(crate) bytes: Option<u64>,
    /// Upstream address, if the service failed.
    pub(crate) upstream: Option<String>,
    /// Cause of a failure of the service or of the connection to it.
    pub(crate) cause: Option<String>,
    /// Present with `--request-id`.
    pub(crate) request_id: Option<RequestId>,
    /// Present if the request belongs to a trace.
    pub(crate) trace_id: Option<TraceId>,
}

impl<'a> RequestRecord<'a> {
    /// Returns the method, cut to a max length: a client may invent one.
    pub(crate) fn method(&self) -> Option<&'a str> {
        self.request.map(|(method, _)| short(method.as_str()))
    }

    /// Returns the path as it may be logged, without the query.
    pub(crate) fn path(&self) -> Option<LoggedPath<'a>> {
        self.request.map(|(_, target)| LoggedPath(target))
    }

    /// Writes the record to the access log.
    pub(crate) fn write(&self, completion: &Completion) {
        let outcome = completion.outcome;
        let line = AccessLine {
            outcome: outcome.as_str(),
            reason: outcome.reason(),
            status: completion.status,
            method: self.method(),
            path: self.path(),
            client: self.client,
            user: self.user.as_deref(),
            issuer: self.issuer,
            duration: completion.duration,
            upstream_duration: self.upstream_duration,
            bytes: self.bytes,
            request_id: self.request_id.as_ref().map(|id| id as _),
            trace_id: self.trace_id.as_ref().map(|id| id as _),
            upstream: self.upstream.as_deref(),
            cause: self.cause.as_deref(),
        };
        line.write();
    }
}
