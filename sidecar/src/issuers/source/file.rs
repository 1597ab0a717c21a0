//! Keys from a file: a JWK Set, or PEM. Read again at every tick, so that a key is changed by
//! replacing the file.

use std::fmt;
use std::path::PathBuf;

use runtime::files::bounded_read::{self, ReadError};
use wire::keys::{Algorithm, KeyError, KeySet};

use super::http_client::MAX_BODY_BYTES;

/// One file and how its keys may be used.
#[derive(Debug, Clone)]
pub(crate) struct KeyFile {
    pub(crate) path: PathBuf,
    pub(crate) algorithms: Vec<Algorithm>,
}

/// The reason why a file has no usable keys. The text names it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyFileError {
    #[error("{}: {cause}", path.display())]
    Unreadable { path: PathBuf, cause: ReadError },
    #[error("{} cannot be used: {cause}", path.display())]
    Unusable { path: PathBuf, cause: KeyError },
}

impl KeyFile {
    /// Reads the keys of the file.
    pub(crate) fn read(&self) -> Result<KeySet, KeyFileError> {
        let path = || self.path.clone();
        let bytes = bounded_read::read(&self.path, MAX_BODY_BYTES as u64)
            .map_err(|cause| KeyFileError::Unreadable {
                path: path(),
                cause,
            })?
            .bytes;
        let allowed = &self.algorithms;
        match bytes.trim_ascii_start() {
            [b'{', ..] => KeySet::from_jwks(&bytes, allowed),
            _ => KeySet::from_pem(&String::from_utf8_lossy(&bytes), allowed),
        }
        .map_err(|cause| KeyFileError::Unusable {
            path: path(),
            cause,
        })
    }
}

impl fmt::Display for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}
