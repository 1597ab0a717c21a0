//! The process of each program: command line and configuration file, files and their changes, logs,
//! metrics, exit codes, signals, supervised tasks, pauses, clock.
//!
//! Never here: sockets, tokens, keys, routes.

pub mod clock;
pub mod command_line;
pub mod exit;
pub mod files;
pub mod logs;
pub mod memory_limit;
pub mod metrics;
mod named_enum;
pub mod output;
pub mod pauses;
pub mod signals;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod supervisor;
pub mod tasks;
