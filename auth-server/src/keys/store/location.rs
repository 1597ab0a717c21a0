//! `--store`: which store, and where.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::file::FileStore;
use super::redis::RedisStore;
use super::{KeyStore, StoreError};

/// A store that was named but not touched yet.
#[derive(Debug, Clone)]
pub(crate) enum StoreLocation {
    File(PathBuf),
    Redis(Box<RedisStore>),
}

/// The texts do not repeat the address: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidLocation {
    #[error(
        "expected file:DIR, redis://HOST:PORT/DB, rediss://HOST:PORT/DB or redis+unix:///SOCKET"
    )]
    Unknown,
    #[error("file: needs a directory, such as file:./data")]
    NoDirectory,
    #[error("not a redis address: {0}")]
    Redis(String),
    #[error("--store-password-file is for a redis store")]
    PasswordForFiles,
}

impl StoreLocation {
    pub(crate) fn parse(text: &str, password: Option<&str>) -> Result<Self, InvalidLocation> {
        match text.split_once(':') {
            Some(("file", _)) if password.is_some() => Err(InvalidLocation::PasswordForFiles),
            Some(("file", "")) => Err(InvalidLocation::NoDirectory),
            Some(("file", directory)) => Ok(Self::File(PathBuf::from(directory))),
            Some(("redis" | "rediss" | "redis+unix", _)) => RedisStore::new(text, password)
                .map(|store| Self::Redis(Box::new(store)))
                .map_err(InvalidLocation::Redis),
            _ => Err(InvalidLocation::Unknown),
        }
    }

    /// For a command.
    pub(crate) fn open(&self) -> Arc<dyn KeyStore> {
        match self {
            Self::File(directory) => Arc::new(FileStore::new(directory.clone())),
            Self::Redis(store) => Arc::new(RedisStore::clone(store)),
        }
    }

    /// For a server, which has a file store to itself.
    ///
    /// # Errors
    /// Those of [`FileStore::for_serving`]; a redis store is not asked yet.
    pub(crate) fn open_for_serving(&self) -> Result<Arc<dyn KeyStore>, StoreError> {
        match self {
            Self::File(directory) => Ok(Arc::new(FileStore::for_serving(directory.clone())?)),
            Self::Redis(store) => Ok(Arc::new(RedisStore::clone(store))),
        }
    }
}

/// Without user and password.
impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(directory) => write!(f, "file:{}", directory.display()),
            Self::Redis(store) => f.write_str(store.shown()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn each_kind_of_address_is_shown_without_its_password() {
        for (text, shown) in [
            ("file:./data", "file:./data"),
            ("file:/var/lib/auth", "file:/var/lib/auth"),
            ("redis://localhost", "redis://localhost:6379/0"),
            ("redis://user:hush@store:7000/2", "redis://store:7000/2"),
            ("rediss://:hush@store", "rediss://store:6379/0"),
            (
                "redis+unix:///run/redis.sock",
                "redis+unix:///run/redis.sock?db=0",
            ),
        ] {
            let location = StoreLocation::parse(text, None).unwrap();
            assert_eq!(location.to_string(), shown);
            assert!(!format!("{location:?}").contains("hush"));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_repeating_it() {
        for text in [
            "",
            "data",
            "./data",
            "file:",
            "http://:hush@x",
            "redis://",
            "redis://:hush@x/y",
            "rediss://:hush@x#insecure",
        ] {
            let error = StoreLocation::parse(text, None).unwrap_err();
            assert!(!error.to_string().contains("hush"), "{error}");
        }
        assert_eq!(
            StoreLocation::parse("file:x", Some("p")).unwrap_err(),
            InvalidLocation::PasswordForFiles
        );
    }
}
