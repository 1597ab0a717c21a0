//! Report-only mode: its end, and the settings that exclude it.

use postern_process::exit::ExitError;
use postern_token::times::{moment, parse_moment};

use super::flag_value::flag_error;
use crate::cli::ServeArgs;
use crate::cli::policy_args::{Enforce, EnforcementArgs};

/// Max length of report-only mode: long enough to find every client, too short to be forgotten.
const MAX_SECONDS: i64 = 30 * 24 * 60 * 60;

/// Returns the end of the mode, in seconds since the epoch; `None` where requests are rejected.
///
/// # Errors
/// As [`super::Config::new`].
pub(super) fn reporting_until(args: &EnforcementArgs) -> Result<Option<i64>, ExitError> {
    let reject = |line: &str| Err(ExitError::Config(line.to_owned()));
    match (args.enforce, &args.report_until) {
        (Enforce::On, Some(_)) => reject("--report-until: only with --enforce report"),
        (Enforce::On, None) => Ok(None),
        (Enforce::Report, None) => reject(
            "--enforce report: needs --report-until, the time from which requests are rejected",
        ),
        (Enforce::Report, Some(until)) => match parse_moment(until) {
            Ok(moment) => Ok(Some(moment)),
            Err(error) => Err(flag_error("report-until", until, error)),
        },
    }
}

/// Rejects an end that is too far ahead of `now`, and settings that it contradicts. A past end is no error,
/// because a pod that starts again would fail with it: from then on requests are rejected.
///
/// # Errors
/// As [`super::Config::new`].
pub(super) fn check(args: &ServeArgs, until: Option<i64>, now: i64) -> Result<(), ExitError> {
    let Some(until) = until else {
        return Ok(());
    };
    if until.saturating_sub(now) > MAX_SECONDS {
        let why = "is more than 30 days ahead";
        return Err(flag_error("report-until", moment(until), why));
    }
    if args.service.require_unexposed {
        let line =
            "--require-unexposed: not with --enforce report, which lets requests pass unverified";
        return Err(ExitError::Config(line.to_owned()));
    }
    Ok(())
}
