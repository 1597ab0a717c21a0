//! What both programs do alike as processes: command line and configuration file, secret files,
//! files of our own, TLS certificates, logs, health, admin port, listeners, signals, work in
//! the background, looks at files and reading those of others, what a command prints, exit codes,
//! addresses of clients behind proxies, loopback hosts, file descriptors.
//!
//! Nothing here knows tokens, keys or HTTP routes of either program.

pub mod access_log;
pub mod admin;
pub mod admin_client;
pub mod bounded_read;
pub mod client_address;
pub mod clock;
pub mod command_line;
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
pub mod output;
pub mod owner_only_file;
pub mod sanitize;
pub mod secret_file;
pub mod signals;
pub mod supervisor;
pub mod telemetry;
pub mod tls;
pub mod toml_error;
pub mod write_deadline;
