//! The files of the reloadable settings, and their states.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use postern_process::command_line;
use postern_process::files::bounded_read::{self, FileContent};
use postern_token::digest::{Digest, sha256};

use crate::cli::{Cli, ServeArgs};

/// Max length of a file of settings.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The digest of one file, its owner and mode, by which it may become readable; or the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileState(Result<(Digest, [u32; 2]), String>);

/// Files, and their states before they were read.
pub(crate) type FileStates = BTreeMap<PathBuf, FileState>;

/// Returns the states of the files of `args`. Called before the files are read for the first time, so that
/// later changes are noticed.
pub(crate) fn files_of(args: &ServeArgs) -> FileStates {
    states_of(paths_of(args))
}

/// Returns the files of the reloadable settings, without those that other tasks poll.
pub(super) fn paths_of(args: &ServeArgs) -> BTreeSet<PathBuf> {
    [
        command_line::config_file::<Cli>(),
        args.keys.app_secret_file.clone(),
        args.upstream.upstream_ca.clone(),
        args.upstream.upstream_client_cert.clone(),
        args.upstream.upstream_client_key.clone(),
        args.rules.tokens.dpop_nonce_key_file.clone(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(super) fn states_of(paths: BTreeSet<PathBuf>) -> FileStates {
    let with_state = |path: PathBuf| (path.clone(), state_of(&path));
    paths.into_iter().map(with_state).collect()
}

pub(super) fn state_of(path: &Path) -> FileState {
    match bounded_read::read(path, MAX_FILE_BYTES) {
        Ok(FileContent { bytes, metadata }) => {
            FileState(Ok((sha256(bytes), [metadata.uid(), metadata.mode()])))
        }
        Err(error) => FileState(Err(error.to_string())),
    }
}
