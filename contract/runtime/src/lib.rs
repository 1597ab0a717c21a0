//! The process side of both programs: command line and configuration file, files and their changes,
//! TLS certificates, logs, health, metrics, admin port, listeners, signals, supervised tasks, output and
//! exit codes, client addresses, limits of the process.
//!
//! Nothing here knows tokens, keys or HTTP routes of either program.

pub mod access_log;
pub mod admin;
pub mod admin_client;
pub mod bounded_read;
pub mod client_address;
pub mod clock;
pub mod command_line;
pub mod connection_slots;
pub mod exit;
pub mod fd_limit;
pub mod file_watch;
pub mod health;
pub mod healthcheck;
pub mod histogram;
pub mod host_port;
pub mod listener;
pub mod lock_file;
mod log_lines;
pub mod loopback;
pub mod memory_limit;
pub mod metrics;
mod named_enum;
pub mod once_a_minute;
pub mod output;
pub mod owner_only_file;
pub mod sanitize;
pub mod secret_file;
pub mod server_url;
pub mod signals;
pub mod supervisor;
pub mod telemetry;
pub mod tls;
pub mod toml_error;
pub mod traces;
pub mod write_deadline;
