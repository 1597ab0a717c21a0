//! The last refusals, for the status page. Bounded in number and in size; locked for as long as it
//! takes to put one in.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use contract::rejection::Rejection;

use crate::telemetry::access_log::RequestRecord;

const CAPACITY: usize = 50;

/// The newest ones.
#[derive(Debug, Default)]
pub(crate) struct RecentRejections(Mutex<VecDeque<RejectedRequest>>);

/// What may be shown of a refused request: as in its log line, neither query nor header nor token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RejectedRequest {
    pub(crate) at: SystemTime,
    pub(crate) rejection: Rejection,
    /// Of the answer; absent where the client was gone or had part of an answer already.
    pub(crate) status: Option<u16>,
    /// Absent, like the path, where there was no request to read.
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
        record: &RequestRecord<'_>,
        at: SystemTime,
    ) {
        let refused = RejectedRequest {
            at,
            rejection,
            status: record.status,
            method: record.method().map(ToOwned::to_owned),
            path: record.path().map(|path| path.to_string()),
            client: record.client,
            upstream: record.upstream.clone(),
            cause: record.cause.clone(),
            request_id: record.request_id.as_ref().map(ToString::to_string),
            trace_id: record.trace_id.map(|id| id.to_string()),
        };
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.len() == CAPACITY {
            newest.pop_back();
        }
        newest.push_front(refused);
    }

    /// Newest first.
    pub(crate) fn newest(&self) -> Vec<RejectedRequest> {
        let newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        newest.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn the_newest_fifty_are_kept_without_query_and_cut() {
        let refusals = RecentRejections::default();
        let target = format!("/{}?secret", "x".repeat(300));
        for count in 0..60 {
            let record = RequestRecord {
                request: Some((&Method::GET, target.as_bytes())),
                status: Some(400 + count),
                ..RequestRecord::default()
            };
            refusals.remember(Rejection::TokenExpired, &record, SystemTime::UNIX_EPOCH);
        }
        let newest = refusals.newest();
        assert_eq!(newest.len(), 50);
        assert_eq!(newest.first().and_then(|refused| refused.status), Some(459));
        for refused in newest {
            let path = refused.path.unwrap_or_default();
            assert_eq!(path.chars().count(), 129, "{path}");
            assert!(!path.contains("secret"));
        }
    }
}
