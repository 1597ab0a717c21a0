//! The process side of both programs: command line and configuration file, files and their changes,
//! TLS certificates, logs, health, metrics, admin port, listeners, signals, supervised tasks, output and
//! exit codes, client addresses, limits of the process.
//!
//! Nothing here knows tokens, keys or HTTP routes of either program.

pub mod admin;
pub mod command_line;
pub mod files;
pub mod http_port;
pub mod logs;
pub mod metrics;
mod named_enum;
pub mod net;
pub mod process;
pub mod tls;
pub mod traces;
