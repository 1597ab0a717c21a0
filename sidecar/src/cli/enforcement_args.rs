//! Rejections that are only reported, for a time.

use clap::{Args, ValueEnum};
use serde::Serialize;

/// Enforcement of tokens and rules.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "Enforcement")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct EnforcementArgs {
    /// Reject requests, or only report those that would be rejected for their token or by a
    /// [[rule]]
    ///
    /// They are forwarded, with a user only if their token was verified. Framing, paths and sizes
    /// are enforced always
    #[arg(long, env, value_enum, default_value_t, value_name = "MODE")]
    pub(crate) enforce: Enforce,

    /// With --enforce report: the time from which requests are rejected all the same
    ///
    /// As in 2026-12-31T00:00:00Z, at most 30 days ahead
    #[arg(long, env, value_name = "TIME")]
    pub(crate) report_until: Option<String>,
}

/// The mode of enforcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Enforce {
    /// Requests are rejected.
    #[default]
    On,
    /// Requests are reported and forwarded.
    Report,
}
