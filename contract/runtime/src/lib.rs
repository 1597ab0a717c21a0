//! What both programs do alike as processes: command line and configuration file, secret files,
//! files of our own, TLS certificates, logs, health, admin port, listeners, signals, work in
//! the background, looks at files and reading those of others, what a command prints, exit codes,
//! addresses of clients behind proxies, loopback hosts, file descriptors.
//!
//! Nothing here knows tokens, keys or HTTP routes of either program.

pub mod access_log;
pub mod admin;
pub mod admin_client;
pub mod background;
pub mod client_address;
pub mod clock;
pub mod command_line;
pub mod descriptors;
pub mod exit;
pub mod file_read;
pub mod health;
pub mod healthcheck;
pub mod histogram;
pub mod listener;
pub mod lock_file;
mod log_lines;
pub mod looks;
pub mod loopback;
pub mod memory_limit;
pub mod output;
pub mod private_file;
pub mod secret_file;
pub mod signals;
pub mod telemetry;
pub mod tls;
pub mod toml_fault;
pub mod write_deadline;
