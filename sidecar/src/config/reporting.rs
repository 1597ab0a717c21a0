//! Report-only mode: its end, and what excludes it.

use runtime::process::exit::ExitError;
use wire::explain::report::parse_moment;

use super::flag_value::flag_error;
use crate::auth::reporting::Reporting;
use crate::cli::ServeArgs;
use crate::cli::enforcement_args::{Enforce, EnforcementArgs};

/// Long enough to find every client, too short to be forgotten.
const MAX_SECONDS: i64 = 30 * 24 * 60 * 60;

/// Returns the mode; `None` where requests are rejected.
///
/// # Errors
/// As [`super::Config::new`].
pub(super) fn reporting(args: &EnforcementArgs) -> Result<Option<Reporting>, ExitError> {
    let reject = |line: &str| Err(ExitError::Config(line.to_owned()));
    match (args.enforce, &args.report_until) {
        (Enforce::On, Some(_)) => reject("--report-until: only with --enforce report"),
        (Enforce::On, None) if args.report_header => {
            reject("--report-header: only with --enforce report")
        }
        (Enforce::On, None) => Ok(None),
        (Enforce::Report, None) => reject(
            "--enforce report: needs --report-until, the time from which requests are rejected",
        ),
        (Enforce::Report, Some(until)) => {
            let until =
                parse_moment(until).map_err(|error| flag_error("report-until", until, error))?;
            let sends_header = args.report_header;
            Ok(Some(Reporting {
                until,
                sends_header,
            }))
        }
    }
}

/// Rejects an end that is too far ahead of `now`, and settings that it contradicts. A past one is
/// no error, because a pod that starts again would go down with it: requests are rejected.
///
/// # Errors
/// As [`super::Config::new`].
pub(super) fn check(
    args: &ServeArgs,
    reporting: Option<Reporting>,
    now: i64,
) -> Result<(), ExitError> {
    let Some(Reporting { until, .. }) = reporting else {
        return Ok(());
    };
    if until.saturating_sub(now) > MAX_SECONDS {
        return Err(flag_error(
            "report-until",
            args.rules
                .enforcement
                .report_until
                .as_deref()
                .unwrap_or_default(),
            "is more than 30 days ahead",
        ));
    }
    if args.upstream.require_unexposed {
        let line =
            "--require-unexposed: not with --enforce report, which lets requests pass unverified";
        return Err(ExitError::Config(line.to_owned()));
    }
    Ok(())
}
