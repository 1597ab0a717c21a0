//! The last rejections, for the status page: bounded in number and size.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::Serialize;
use wire::rejection::Rejection;

use crate::telemetry::access_log::RequestRecord;

const CAPACITY: usize = 50;

/// The newest rejections.
#[derive(Debug, Default)]
pub(crate) struct RecentRejections(Mutex<VecDeque<RejectedRequest>>);

/// Record of a rejected request: like its log line without query, headers and token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct RejectedRequest {
    #[serde(skip)]
    pub(crate) at: SystemTime,
    #[serde(skip)]
    pub(crate) rejection: Rejection,
    /// Status of the response; `None` if the client was gone or already had part of a response.
    pub(crate) status: Option<u16>,
    /// `None`, like the path, for a request that could not be parsed.
    pub(crate) method: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) client: Option<IpAddr>,
    pub(crate) upstream: Option<String>,
    pub(crate) cause: Option<String>,
    pub(crate) request_id: Option<String>,
    pub(crate) trace_id: Option<String>,
}

impl RecentRejections {
    pub(crate) fn remember(
        &self,
        rejection: Rejection,
        status: Option<u16>,
        record: &RequestRecord<'_>,
        at: SystemTime,
    ) {
        let rejected = RejectedRequest {
            at,
            rejection,
            status,
            method: record.method().map(ToOwned::to_owned),
            path: record.path().map(|path| path.to_string()),
            client: record.client,
            upstream: record.upstream.clone(),
            cause: record.cause.clone(),
            request_id: record.request_id.as_ref().map(ToString::to_string),
            trace_id: record.trace_id.map(|id| id.to_string()),
        };
        let mut newest = self.0.lock();
        if newest.len() == CAPACITY {
            newest.pop_back();
        }
        newest.push_front(rejected);
    }

    /// Returns the rejections, newest first.
    pub(crate) fn newest(&self) -> Vec<RejectedRequest> {
        let newest = self.0.lock();
        newest.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn the_newest_fifty_are_kept_cut_and_without_query() {
        let rejections = RecentRejections::default();
        let target = format!("/{}?secret", "x".repeat(300));
        for count in 0..60 {
            let record = RequestRecord {
                request: Some((&Method::GET, target.as_bytes())),
                ..RequestRecord::default()
            };
            let (status, at) = (Some(400 + count), SystemTime::UNIX_EPOCH);
            rejections.remember(Rejection::TokenExpired, status, &record, at);
        }
        let newest = rejections.newest();
        assert_eq!(newest.len(), 50);
        assert_eq!(
            newest.first().and_then(|rejected| rejected.status),
            Some(459)
        );
        for rejected in newest {
            let path = rejected.path.unwrap_or_default();
            assert_eq!(path.chars().count(), 129, "{path}");
            assert!(!path.contains("secret"));
        }
    }
}
