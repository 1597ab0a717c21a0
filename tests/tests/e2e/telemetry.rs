//! Logs, metrics, traces, probes, start and end.

mod access_lines;
mod admin_page;
mod audit_lines;
mod failures;
mod json_log;
mod operation;
mod queries;
mod quiet_log;
mod traces;
