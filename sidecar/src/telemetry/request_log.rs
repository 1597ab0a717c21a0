//! Request completion: metrics, access log, reported paths, the end of the span.

use std::sync::Arc;

use postern_transport::traces::request_span::RequestSpan;

use crate::telemetry::access_log::{AccessLine, AccessLog};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::outcome::{Completion, Outcome};
use crate::telemetry::reported_paths::ReportedPaths;

/// Reporter of finished requests; clones share its metrics and its reported paths.
#[derive(Debug, Clone)]
pub(crate) struct RequestLogger {
    pub(crate) metrics: Metrics,
    pub(crate) reported: Arc<ReportedPaths>,
}

impl RequestLogger {
    /// Reports a request and ends its span; `line` is called only if the request is logged, reported or
    /// traced, and gets its last members here.
    pub(crate) fn request_ended<'a>(
        &self,
        completion: Completion,
        access_log: AccessLog,
        span: RequestSpan,
        line: impl FnOnce() -> AccessLine<'a>,
    ) {
        let Completion {
            outcome,
            status,
            duration,
            was_counted,
        } = completion;
        let mut logged = match outcome {
            // The client gave up on a service that may hang.
            Outcome::Aborted if status.is_none() => Some(outcome.as_str()),
            _ => outcome.reason(),
        };
        if was_counted {
            // This request gets a line only where every request gets one.
            logged = None;
        } else {
            self.metrics.requests.count(completion);
        }
        let is_logged = access_log.takes_line(logged);
        let reported = match outcome {
            Outcome::Reported(rejection) => Some(rejection),
            _ => None,
        };
        if !is_logged && reported.is_none() && !span.is_recorded() {
            return;
        }
        let line = AccessLine {
            outcome: outcome.as_str(),
            reason: outcome.reason(),
            status,
            duration,
            ..line()
        };
        if let Some((rejection, (method, path))) = reported.zip(line.method.zip(line.path)) {
            self.reported.remember(rejection, (method, path.0), status);
        }
        if is_logged {
            line.write();
        }
        span.end(&line, outcome.error(status));
    }
}
