//! The last good keys in a file, so that a sidecar that starts while no key server is reachable
//! verifies tokens at once.
//!
//! The file passes the checks of a fetched key set, counts only for its source, and keeps the time
//! of the fetch: `--max-key-age` goes on across a restart. The file holds public keys, but a writer
//! could add trusted ones: it is a private file. One that could not be replaced is not trusted at a
//! restart: the issuer may have dropped its keys meanwhile.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant, SystemTime};

use runtime::files::owner_only_file::{self, PrivateFileError};
use runtime::process::clock::{unix_now, unix_seconds};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wire::keys::{Algorithm, KeyError, KeySet, VerificationKey};

use super::current::{FetchTime, KeySetFingerprint};
use super::http_client::MAX_BODY_BYTES;
use crate::telemetry::metrics::Metrics;

/// The longest fetched set, with room for the rest of the file.
const MAX_FILE_BYTES: u64 = 2 * MAX_BODY_BYTES as u64;
/// Pause between two writes of the fetch time alone: once at each tick of a minute.
const TIME_IS_GOOD_FOR: Duration = Duration::from_secs(50);
/// The version of the file format.
const VERSION: u32 = 1;

/// The source of the keys and the tokens that they verify: a file for others is not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct CacheScope {
    /// The name in the log.
    pub(crate) source: String,
    /// SHA-256 of the whole address: the query of a URL, which the name leaves out, may be a
    /// secret.
    pub(crate) address_sha256: String,
    pub(crate) application: Option<String>,
    pub(crate) issuer: Option<String>,
    /// Names of the algorithms, in order.
    pub(crate) algorithms: Vec<String>,
}

/// The file, and the scope that it has to have.
#[derive(Debug, Clone)]
pub(crate) struct KeyCacheSettings {
    pub(crate) file: PathBuf,
    pub(crate) origin: CacheScope,
    pub(crate) allowed: Vec<Algorithm>,
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Content {
    version: u32,
    origin: CacheScope,
    /// Seconds since the epoch.
    fetched_at: i64,
    /// A JWK Set.
    jwks: Value,
}

/// The reason why a file is not used.
#[derive(Debug, thiserror::Error)]
enum CacheError {
    #[error(transparent)]
    File(#[from] PrivateFileError),
    #[error("it is not a key cache of this version")]
    Malformed,
    #[error("its keys are of {source_name} with other settings, or of another source")]
    OtherOrigin { source_name: String },
    #[error("its keys were fetched in the future")]
    InTheFuture,
    #[error("its keys cannot be used: {0}")]
    Keys(#[from] KeyError),
    #[error("it holds a key that cannot be used")]
    UnusableKey,
    #[error("it could not be replaced when it had to be")]
    Outdated,
    #[error("it cannot be replaced: {0}")]
    Fixed(std::io::Error),
}

/// Keys from the file, and their fetch time.
pub(super) type Found = (KeySet, FetchTime);

/// The file, and the last keys written to it.
#[derive(Debug)]
pub(crate) struct KeyCache {
    settings: Arc<KeyCacheSettings>,
    /// Locked while the file is written.
    written: Arc<Mutex<Written>>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Written {
    /// The last written scope, keys and fetch time.
    last: Option<(CacheScope, KeySetFingerprint, Instant)>,
    /// True while the file cannot be written, for the readiness report.
    failing: Arc<AtomicBool>,
}

impl KeyCache {
    pub(crate) fn new(
        settings: KeyCacheSettings,
        metrics: Metrics,
        failing: Arc<AtomicBool>,
    ) -> Self {
        let written = Written {
            last: None,
            failing,
        };
        Self {
            settings: Arc::new(settings),
            written: Arc::new(Mutex::new(written)),
            metrics,
        }
    }

    /// Returns the keys of the file, or logs why it is not usable.
    pub(super) fn load(&self, now: SystemTime) -> Option<Found> {
        let settings = &self.settings;
        let found = settings.read(now).transpose()?;
        let file = owner_only_file::describe(&settings.file);
        match found {
            Ok(found) => Some(found),
            Err(error) => {
                tracing::warn!(file, %error, "the key cache is not used");
                if matches!(error, CacheError::Fixed(_)) {
                    self.metrics.key_cache_written(false);
                    if let Ok(written) = self.written.lock() {
                        written.failing.store(true, Ordering::Relaxed);
                    }
                }
                None
            }
        }
    }

    /// Sets the scope of the next fetch, which is then written in any case.
    pub(super) fn set_scope(&mut self, origin: CacheScope) {
        Arc::make_mut(&mut self.settings).origin = origin;
    }

    /// Writes `keys`, which were fetched just now, in the background: a hanging disk delays no
    /// fetch, and is skipped until it responds.
    pub(super) fn keep(&self, keys: KeySet) {
        let (settings, written) = (Arc::clone(&self.settings), Arc::clone(&self.written));
        let metrics = self.metrics.clone();
        let (now, fetched_at) = (Instant::now(), unix_now());
        tokio::task::spawn_blocking(move || {
            let mut written = match written.try_lock() {
                Ok(written) => written,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            if let Some(outcome) = written.bring_up_to_date(&settings, &keys, now, fetched_at) {
                metrics.key_cache_written(outcome);
            }
        });
    }
}

impl Written {
    /// Writes the file unless it is up to date, which returns `None`; else returns true on success.
    fn bring_up_to_date(
        &mut self,
        settings: &KeyCacheSettings,
        keys: &KeySet,
        now: Instant,
        fetched_at: i64,
    ) -> Option<bool> {
        let names = KeySetFingerprint::of(keys);
        let is_due = self.last.as_ref().is_none_or(|(origin, written, at)| {
            *origin != settings.origin
                || *written != names
                || now.saturating_duration_since(*at) >= TIME_IS_GOOD_FOR
        });
        if !is_due {
            return None;
        }
        match settings.write(keys, fetched_at) {
            Ok(()) => {
                self.last = Some((settings.origin.clone(), names, now));
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("the key cache was written again");
                }
                Some(true)
            }
            Err(error) => {
                if error.kind() != ErrorKind::ResourceBusy {
                    // Where not even this works, a restart cannot replace the file either.
                    let _ = owner_only_file::mark_outdated(&settings.file);
                }
                // Logged once, however long the disk stays full.
                if !self.failing.swap(true, Ordering::Relaxed) {
                    let file = owner_only_file::describe(&settings.file);
                    tracing::warn!(file, %error, "the key cache cannot be written");
                }
                Some(false)
            }
        }
    }
}

impl KeyCacheSettings {
    /// Returns the keys of the file, which is written once more: what cannot be written was not kept
    /// up to date.
    fn read(&self, now: SystemTime) -> Result<Option<Found>, CacheError> {
        let Some(text) = owner_only_file::read(&self.file, MAX_FILE_BYTES)? else {
            return Ok(None);
        };
        let content: Content = serde_json::from_str(&text).map_err(|_| CacheError::Malformed)?;
        if content.version != VERSION {
            return Err(CacheError::Malformed);
        }
        if content.origin != self.origin {
            let source_name = content.origin.source.escape_debug().collect();
            return Err(CacheError::OtherOrigin { source_name });
        }
        let age = unix_seconds(now)
            .checked_sub(content.fetched_at)
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map(Duration::from_secs)
            .ok_or(CacheError::InTheFuture)?;
        let keys = content.keys(&self.allowed)?;
        if owner_only_file::is_outdated(&self.file) {
            return Err(CacheError::Outdated);
        }
        match owner_only_file::replace(&self.file, &text) {
            Err(error) if error.kind() != ErrorKind::ResourceBusy => {
                return Err(CacheError::Fixed(error));
            }
            _ => {}
        }
        Ok(Some((keys, FetchTime::before(Instant::now(), age))))
    }

    fn write(&self, keys: &KeySet, fetched_at: i64) -> std::io::Result<()> {
        let content = Content::of(self.origin.clone(), keys, fetched_at)?;
        let text = serde_json::to_string_pretty(&content)?;
        owner_only_file::replace(&self.file, &(text + "\n"))
    }
}

impl Content {
    fn of(origin: CacheScope, keys: &KeySet, fetched_at: i64) -> std::io::Result<Self> {
        let jwk = |key: &VerificationKey| {
            let mut jwk = key.to_jwk()?;
            jwk.common.key_id = jwk.common.key_id.filter(|_| key.is_named());
            Some(jwk)
        };
        let jwks: Option<Vec<_>> = keys.keys().iter().map(jwk).collect();
        // A secret has no JWK: hmac and a cache exclude each other at the start.
        let jwks = jwks.ok_or_else(|| std::io::Error::other("a secret is never written"))?;
        Ok(Self {
            version: VERSION,
            origin,
            fetched_at,
            jwks: serde_json::json!({ "keys": jwks }),
        })
    }

    /// Parses them like a fetched set, which skips unknown keys; here a skipped key is an error,
    /// because all of them were in use.
    fn keys(&self, allowed: &[Algorithm]) -> Result<KeySet, CacheError> {
        let json = self.jwks.to_string();
        let keys = KeySet::from_jwks(json.as_bytes(), allowed)?;
        let stored = self.jwks.get("keys").and_then(Value::as_array);
        if stored.map(Vec::len) != Some(keys.keys().len()) {
            return Err(CacheError::UnusableKey);
        }
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::os::unix::fs::{PermissionsExt, symlink};

    use serde_json::json;
    use tempfile::TempDir;
    use wire::keys::signing_type::SigningType;

    use super::super::jwks::tests::{ONE, OTHER, set_of};
    use super::*;

    const FETCHED_AT: i64 = 1_800_000_000;

    fn settings(home: &TempDir) -> KeyCacheSettings {
        KeyCacheSettings {
            file: home.path().join("keys.json"),
            origin: CacheScope {
                source: "http://auth/auth".to_owned(),
                address_sha256: "00".to_owned(),
                application: Some("orders".to_owned()),
                issuer: Some("auth".to_owned()),
                algorithms: vec!["ES256".to_owned()],
            },
            allowed: vec![Algorithm::ES256],
        }
    }

    fn at(seconds: i64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.try_into().unwrap())
    }

    fn named(keys: &[&str]) -> KeySet {
        KeySet::from_jwks(set_of(keys).as_bytes(), &[Algorithm::ES256]).unwrap()
    }

    fn nameless() -> KeySet {
        KeySet::nameless(VerificationKey::parse(SigningType::Ecdsa, ONE).unwrap())
    }

    fn why_not(settings: &KeyCacheSettings) -> String {
        settings.read(at(FETCHED_AT)).unwrap_err().to_string()
    }

    #[test]
    fn written_keys_are_found_again_with_their_age() {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(&home);
        assert!(settings.read(at(FETCHED_AT)).unwrap().is_none());
        for keys in [named(&[ONE, OTHER]), nameless(), named(&[OTHER])] {
            settings.write(&keys, FETCHED_AT).unwrap();
            let (found, fetched) = settings.read(at(FETCHED_AT + 90)).unwrap().unwrap();
            assert_eq!(KeySetFingerprint::of(&found), KeySetFingerprint::of(&keys));
            let state = super::super::current::CurrentKeys::default();
            state.install(found, fetched);
            let age = state.load().as_ref().unwrap().age(Instant::now());
            assert!(age >= Duration::from_secs(90) && age < Duration::from_secs(100));
        }
    }

    #[test]
    fn a_fetch_in_the_future_is_rejected() {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(&home);
        for fetched_at in [FETCHED_AT + 1, i64::MAX] {
            settings.write(&nameless(), fetched_at).unwrap();
            assert_eq!(why_not(&settings), CacheError::InTheFuture.to_string());
        }
        // So long ago that the age overflows.
        settings.write(&nameless(), i64::MIN).unwrap();
        assert!(settings.read(at(FETCHED_AT)).is_err());
    }

    #[test]
    fn the_keys_of_another_source_are_not_used() {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(&home);
        settings.write(&nameless(), FETCHED_AT).unwrap();
        let origin = &settings.origin;
        for other in [
            CacheScope {
                source: "http://evil/auth".to_owned(),
                ..origin.clone()
            },
            CacheScope {
                address_sha256: "01".to_owned(),
                ..origin.clone()
            },
            CacheScope {
                application: None,
                ..origin.clone()
            },
            CacheScope {
                issuer: None,
                ..origin.clone()
            },
            CacheScope {
                algorithms: vec!["RS256".to_owned()],
                ..origin.clone()
            },
        ] {
            let other = KeyCacheSettings {
                origin: other,
                ..settings.clone()
            };
            assert!(why_not(&other).contains("http://auth/auth"));
        }
    }

    #[test]
    fn a_file_that_others_can_write_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(&home);
        settings.write(&nameless(), FETCHED_AT).unwrap();
        let elsewhere = home.path().join("elsewhere");
        std::fs::rename(&settings.file, &elsewhere).unwrap();
        symlink(&elsewhere, &settings.file).unwrap();
        assert!(why_not(&settings).contains("regular file"));
        // Written anew, the link is gone and its target is untouched.
        settings.write(&named(&[OTHER]), FETCHED_AT).unwrap();
        assert!(settings.read(at(FETCHED_AT)).unwrap().is_some());
        let open = std::fs::Permissions::from_mode(0o660);
        std::fs::set_permissions(&settings.file, open).unwrap();
        assert!(why_not(&settings).contains("chmod 600"));
    }

    #[test]
    fn broken_files_are_not_used() {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(&home);
        settings.write(&named(&[ONE, OTHER]), FETCHED_AT).unwrap();
        let good = std::fs::read_to_string(&settings.file).unwrap();
        for cut in 0..good.len() - 2 {
            std::fs::write(&settings.file, &good[..cut]).unwrap();
            why_not(&settings);
        }
        let with = |member: &str, value: Value| {
            let mut content: Value = serde_json::from_str(&good).unwrap();
            content[member] = value;
            content.to_string()
        };
        let mut private: Value = serde_json::from_str(&set_of(&[ONE])).unwrap();
        private["keys"][0]["d"] = json!("AAAA");
        let mut half: Value = serde_json::from_str(&set_of(&[ONE, OTHER])).unwrap();
        half["keys"][1]["kty"] = json!("oct");
        for bad in [
            with("version", json!(2)),
            with("more", json!(1)),
            with("jwks", json!({"keys": []})),
            with("jwks", private),
            with("jwks", half),
            with("jwks", Value::Null),
            "\0".repeat(100),
            " ".repeat(MAX_FILE_BYTES as usize) + &good,
        ] {
            std::fs::write(&settings.file, &bad).unwrap();
            why_not(&settings);
        }
    }

    #[test]
    fn it_is_written_when_the_keys_change_and_once_a_minute() {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(&home);
        let start = Instant::now();
        let mut written = Written::default();
        let mut at = |seconds, keys: &KeySet| {
            let now = start + Duration::from_secs(seconds);
            written.bring_up_to_date(&settings, keys, now, FETCHED_AT)
        };
        let (one, both) = (named(&[ONE]), named(&[ONE, OTHER]));
        for (seconds, keys, outcome) in [
            (0, &one, Some(true)),
            (1, &one, None),
            (2, &both, Some(true)),
            (3, &both, None),
            (62, &both, Some(true)),
        ] {
            assert_eq!(at(seconds, keys), outcome, "{seconds}");
        }
        drop(home);
        for (seconds, keys, outcome) in [
            (63, &both, None),
            (122, &both, Some(false)),
            // Tried again at each fetch.
            (123, &both, Some(false)),
        ] {
            assert_eq!(at(seconds, keys), outcome, "{seconds}");
        }
    }

    #[test]
    fn a_file_that_was_not_kept_up_to_date_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(&home);
        settings.write(&named(&[ONE]), FETCHED_AT).unwrap();
        // While a directory has the name of the new file, no process can replace the old one.
        let in_the_way = home.path().join("keys.json.new");
        std::fs::create_dir(&in_the_way).unwrap();
        assert!(why_not(&settings).starts_with("it cannot be replaced: "));
        std::fs::remove_dir(&in_the_way).unwrap();
        assert!(settings.read(at(FETCHED_AT)).unwrap().is_some());

        std::fs::create_dir(&in_the_way).unwrap();
        let (mut written, both) = (Written::default(), named(&[ONE, OTHER]));
        let outcome = written.bring_up_to_date(&settings, &both, Instant::now(), FETCHED_AT);
        assert_eq!(outcome, Some(false));
        std::fs::remove_dir(&in_the_way).unwrap();
        assert_eq!(why_not(&settings), CacheError::Outdated.to_string());
        settings.write(&both, FETCHED_AT).unwrap();
        assert!(settings.read(at(FETCHED_AT)).unwrap().is_some());
    }

    #[test]
    fn a_secret_is_never_written() {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(&home);
        let secret = VerificationKey::parse(SigningType::Hmac, &"s".repeat(32)).unwrap();
        assert!(settings.write(&KeySet::nameless(secret), 0).is_err());
        assert!(!settings.file.exists());
    }
}
