//! Files: bounded reads, polls for changes, locks, secrets, files that only their owner may read.

pub mod bounded_read;
pub mod file_watch;
pub mod lock_file;
pub mod owner_only_file;
pub mod replaced_file;
pub mod secret_file;
pub mod toml_error;

use std::path::{Path, PathBuf};

/// Returns `path` with `suffix` after the file name.
#[must_use]
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
