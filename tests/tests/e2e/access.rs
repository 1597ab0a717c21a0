//! Rules, report-only mode and `explain`.

pub(super) mod explain;
mod explained;
mod report_only;
mod rules;
