//! Log lines: their format and filter, the access log, the writer that never blocks.

pub mod access_log;
pub mod log_lines;
pub mod once_a_minute;
pub mod rejection_lines;
pub mod sanitize;
pub mod subscriber;
