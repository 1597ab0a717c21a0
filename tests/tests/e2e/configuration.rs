//! Settings, their sources and documents, reloads, TLS files.

mod check;
mod check_online;
mod client_tls;
pub(super) mod command_line;
mod completions;
mod dev;
mod documents;
mod reload;
mod replaced_files;
mod secrets;
mod settings;
mod tls;
