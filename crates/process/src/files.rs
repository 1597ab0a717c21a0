//! Files: bounded reads, polls for changes, locks, secrets, files that only their owner may read.

pub mod bounded_read;
pub mod file_watch;
pub mod lock_file;
pub mod owner_only_file;
pub mod replaced_file;
pub mod secret_file;
pub mod toml_error;
