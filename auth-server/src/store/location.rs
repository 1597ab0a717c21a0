//! `--store`: the kind and the location of the store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use postern_process::exit::ExitError;

use crate::store::at_rest::KeyEncryption;
use crate::store::directory::{self, Access};
use crate::store::open_store::OpenStore;
use crate::store::redis::RedisStore;
use crate::store::redis::credentials::Credentials;
use crate::store::sqlite::SqliteStore;
use crate::store::{Store, StoreError};

/// Wait for a former server to end, as long as an orchestrator's start-up probe.
const SERVING_WAIT: Duration = Duration::from_secs(60);

/// A configured store, not accessed yet.
#[derive(Clone)]
pub(crate) struct StoreLocation {
    backend: Backend,
    encryption: Arc<KeyEncryption>,
}

#[derive(Clone)]
enum Backend {
    Memory,
    File(PathBuf),
    Redis(Arc<RedisStore>),
}

const EXPECTED: &str = "expected file:DIR, redis://HOST:PORT/DB, redis+sentinel://HOST,HOST/MASTER/DB, \
     redis+cluster://HOST,HOST (each also with rediss for TLS), redis+unix:///SOCKET or memory";

impl StoreLocation {
    /// Parses a location.
    ///
    /// # Errors
    /// Describes the error without the address, which may hold a password.
    pub(crate) fn parse(
        text: &str,
        access: Credentials,
        encryption: KeyEncryption,
    ) -> Result<Self, String> {
        Ok(Self {
            backend: Backend::parse(text, access)?,
            encryption: Arc::new(encryption),
        })
    }

    /// Opens the store; a Redis store is not contacted yet.
    ///
    /// # Errors
    /// The errors of [`SqliteStore::for_serving`]; for a command on a store in memory.
    pub(crate) fn open(&self, access: Access) -> Result<OpenStore, StoreError> {
        let store: Arc<dyn Store> = match (&self.backend, access) {
            (Backend::Memory, Access::Write) => return Err(store_in_memory_error()),
            (Backend::Memory, _) => Arc::new(SqliteStore::in_memory()?),
            // Only one server may use the files: wait for the end of its predecessor.
            (Backend::File(directory), Access::Serve) => {
                Arc::new(SqliteStore::for_serving(directory.clone(), SERVING_WAIT)?)
            }
            (Backend::File(directory), _) => Arc::new(SqliteStore::new(directory.clone(), access)),
            (Backend::Redis(store), _) => Arc::clone(store) as _,
        };
        Ok(OpenStore::new(store, Arc::clone(&self.encryption), self))
    }

    /// Copies the store into a new file.
    ///
    /// # Errors
    /// The errors of [`SqliteStore::backup`]; for a store that is no file.
    pub(crate) fn backup(&self, file: &Path) -> Result<(), ExitError> {
        match &self.backend {
            Backend::Memory => Err(store_in_memory_error().into()),
            Backend::File(directory) => {
                Ok(SqliteStore::new(directory.clone(), Access::Write).backup(file)?)
            }
            Backend::Redis(_) => Err(ExitError::Usage(format!(
                "{self}: Redis makes the backups of its own data, such as redis-cli --rdb FILE"
            ))),
        }
    }

    /// Describes the encryption of a new store.
    pub(crate) fn at_rest(&self) -> String {
        match &self.encryption.current {
            Some(key) => format!("encrypted with the key-encryption key {}", key.id()),
            None => "stored in clear".to_owned(),
        }
    }

    /// Checks that a server could serve from a directory, without a change of it.
    ///
    /// # Errors
    /// [`StoreError::Unusable`]
    pub(crate) fn check_access(&self) -> Result<(), StoreError> {
        match &self.backend {
            Backend::File(path) => directory::check_access(path),
            Backend::Memory | Backend::Redis(_) => Ok(()),
        }
    }

    /// Returns true if the directory does not exist: mistyped, or nothing was ever stored.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(&self.backend, Backend::File(directory) if !directory.exists())
    }

    /// Returns true if the store ends with its server.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.backend, Backend::Memory)
    }

    /// Returns true if data leaves this host unencrypted.
    pub(crate) fn is_in_clear(&self) -> bool {
        matches!(&self.backend, Backend::Redis(store) if store.is_in_clear)
    }

    /// Returns a warning about a certificate that expired before `now` (seconds since 1970).
    pub(crate) fn ending_certificate(&self, now: i64) -> Option<String> {
        match &self.backend {
            Backend::Redis(store) => store.ending_certificate(now),
            Backend::Memory | Backend::File(_) => None,
        }
    }
}

impl Backend {
    fn parse(text: &str, access: Credentials) -> Result<Self, String> {
        let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
        // Credentials without effect are a mistake: the operator may believe that they protect the store.
        if matches!(scheme, "file" | "memory") && access != Credentials::default() {
            return Err("passwords and certificates are for a redis store".to_owned());
        }
        match (scheme, rest) {
            ("memory", "") => Ok(Self::Memory),
            ("file", "") => Err("file: needs a directory, such as file:./data".to_owned()),
            ("file", directory) => Ok(Self::File(PathBuf::from(directory))),
            (
                "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
                | "redis+cluster" | "rediss+cluster",
                _,
            ) => match RedisStore::new(text, access) {
                Ok(store) => Ok(Self::Redis(Arc::new(store))),
                Err(error) => Err(format!("not a redis address: {error}")),
            },
            _ => Err(EXPECTED.to_owned()),
        }
    }
}

fn store_in_memory_error() -> StoreError {
    StoreError::Unusable("--store memory: only its server can use it".to_owned())
}

/// Omits user and password.
impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.backend {
            Backend::Memory => f.write_str("memory"),
            Backend::File(directory) => write!(f, "file:{}", directory.display()),
            Backend::Redis(store) => f.write_str(&store.redacted),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use postern_transport::tls::peer::PeerCertificates;
    use zeroize::Zeroizing;

    use super::*;
    use crate::store::redis::credentials::CredentialFiles;

    fn parse(text: &str) -> Result<StoreLocation, String> {
        parse_with(text, Credentials::default())
    }

    fn parse_with(text: &str, access: Credentials) -> Result<StoreLocation, String> {
        StoreLocation::parse(text, access, KeyEncryption::default())
    }

    #[test]
    fn each_kind_of_address_is_printed_without_its_password() {
        for (text, expected) in [
            ("memory", "memory"),
            ("file:./data", "file:./data"),
            ("file:/var/lib/auth", "file:/var/lib/auth"),
            ("redis://localhost", "redis://localhost"),
            ("redis://user:hush@store:7000/2", "redis://store:7000/2"),
            ("rediss://:hush@[::1]", "rediss://[::1]"),
            (
                "redis+unix:///run/redis.sock?db=2&pass=hush",
                "redis+unix:///run/redis.sock?…",
            ),
            (
                "redis+sentinel://user:h%75sh@one,two:7000,[::1]/main/2",
                "redis+sentinel://one,two:7000,[::1]/main/2",
            ),
            (
                "rediss+cluster://user:hush@one,two:7000/0",
                "rediss+cluster://one,two:7000/0",
            ),
        ] {
            let location = parse(text).unwrap();
            assert_eq!(location.to_string(), expected);
        }
    }

    #[test]
    fn what_leaves_this_host_without_tls_is_in_clear() {
        for (text, is_in_clear) in [
            ("redis://store", true),
            ("redis://192.0.2.1:7000/2", true),
            ("redis+sentinel://localhost,two/main", true),
            ("redis+cluster://[2001:db8::1]", true),
            ("rediss://store", false),
            ("rediss+sentinel://one,two/main", false),
            ("rediss+cluster://one", false),
            ("redis://localhost", false),
            ("redis://127.0.0.1", false),
            ("redis://[::1]:7000", false),
            ("redis+sentinel://localhost,127.0.0.1:1/main", false),
            ("redis+unix:///run/redis.sock?…", false),
            ("file:./data", false),
        ] {
            assert_eq!(parse(text).unwrap().is_in_clear(), is_in_clear, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_rejected_without_repeating_it() {
        for text in [
            "",
            "./data",
            "file:",
            "http://:hush@x",
            "redis://",
            "redis://:hush@x/y",
            "rediss://:hush@x#insecure",
            "redis+sentinel://:hush@one,two",
            "redis+sentinel://:hush@one,/main",
            "redis+sentinel://:hush@one/main/x",
            "redis+sentinel://:hush@one:x/main",
            "redis+sentinel://:hush@one/main?a=b",
            "redis+sentinel:hush@one/main",
            "rediss+sentinel://:hush@one/main#insecure",
            "redis+cluster://:hush@one,two/1",
            "redis+cluster://:hush@",
            "redis+cluster://:hush@one,two?wait=1",
            "redis+ring://:hush@one",
        ] {
            let error = parse(text).err().unwrap();
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn access_that_the_store_has_no_use_for_is_rejected() {
        let access = || Credentials {
            password: Some(Zeroizing::new("hush".to_owned())),
            ..Credentials::default()
        };
        let mut tls = PeerCertificates::default();
        tls.authorities = Some(Vec::new());
        let rejected = parse_with("file:x", access()).err().unwrap();
        assert!(rejected.ends_with("for a redis store"), "{rejected}");
        for (text, access) in [
            ("redis://x", Credentials { tls, ..access() }),
            (
                "redis+cluster://x",
                Credentials {
                    files: CredentialFiles {
                        store_sentinel_user: Some("x".to_owned()),
                        ..CredentialFiles::default()
                    },
                    ..access()
                },
            ),
        ] {
            let rejected = parse_with(text, access).err().unwrap();
            assert!(rejected.starts_with("not a redis address"), "{rejected}");
        }
    }
}
