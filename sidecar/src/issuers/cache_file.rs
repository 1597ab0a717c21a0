//! The last good keys and revocation list in a file, so that a sidecar that starts while no key
//! server is reachable verifies tokens at once.
//!
//! The file passes the checks of a fetched key set, counts only for its source, and keeps the times of the
//! fetches: `--max-key-age` and `--max-revocation-age` go on across a restart. The file holds public keys,
//! but a writer could add trusted ones: it is a private file. A file that could not be replaced is not
//! trusted at a restart: keys may have been dropped and tokens revoked meanwhile.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use postern_process::clock::unix_seconds;
use postern_process::files::bounded_read::ReadError;
use postern_process::files::owner_only_file;
use postern_token::keys::{Algorithm, KeyError, KeySet};
use postern_token::revocations::MAX_LIST_BYTES;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fetch_time::FetchTime;
use super::installed_keys::InstalledKeys;
use super::revocations::{CachedList, Revocations};
use postern_transport::http_client::MAX_BODY_BYTES;

/// The longest fetched set and list, with room for the rest of the file.
const MAX_FILE_BYTES: u64 = 2 * (MAX_BODY_BYTES + MAX_LIST_BYTES) as u64;
/// Seconds between two writes of a fetch time alone: once at each tick of a minute.
const TIME_IS_GOOD_FOR: u64 = 50;
/// The version of the file format.
const VERSION: u32 = 1;

/// The source of the keys and the tokens that they verify: a file for others is not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct KeysOrigin {
    /// The name in the log.
    pub(crate) source: String,
    /// SHA-256 of the whole address, whose query may be a secret, the application, the issuer and the
    /// algorithms.
    pub(crate) sha256: String,
}

/// The file, and the origin that it has to have.
#[derive(Debug, Clone)]
pub(crate) struct KeyCacheSettings {
    pub(crate) file: PathBuf,
    pub(crate) origin: KeysOrigin,
    pub(crate) allowed: Vec<Algorithm>,
}

/// The content of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Content {
    version: u32,
    origin: KeysOrigin,
    /// Seconds since the epoch.
    fetched_at: i64,
    /// A JWK Set.
    jwks: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) revocations: Option<CachedList>,
}

/// The reason why a file is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CacheError {
    #[error(transparent)]
    File(#[from] ReadError),
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

/// The keys of the file, their fetch time, and the list.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) keys: KeySet,
    pub(super) fetched: FetchTime,
    pub(super) revocations: Option<CachedList>,
}

impl KeyCacheSettings {
    /// Returns a warning where the file has no directory: the program makes none.
    pub(crate) fn warning(&self) -> Option<String> {
        let directory = self.file.parent()?;
        if directory.as_os_str().is_empty() || directory.is_dir() {
            None
        } else {
            Some(format!(
                "--key-cache {}: there is no such directory; no keys are kept over a restart",
                directory.display()
            ))
        }
    }

    /// Returns the content of the file, after it was written once more: a file that cannot be written was not
    /// kept up to date.
    pub(super) fn read(&self, now: SystemTime) -> Result<Option<Found>, CacheError> {
        let Some(text) = owner_only_file::read(&self.file, MAX_FILE_BYTES)? else {
            return Ok(None);
        };
        let content: Content = serde_json::from_str(&text).map_err(|_| CacheError::Malformed)?;
        if content.version != VERSION {
            return Err(CacheError::Malformed);
        }
        // Keys of another source must not verify tokens of this one.
        if content.origin != self.origin {
            let source_name = content.origin.source.escape_debug().collect();
            return Err(CacheError::OtherOrigin { source_name });
        }
        let age = match unix_seconds(now).checked_sub(content.fetched_at) {
            Some(age @ 0..) => Duration::from_secs(age.unsigned_abs()),
            _ => return Err(CacheError::InTheFuture),
        };
        let keys = content.keys(&self.allowed)?;
        // Newer keys were in force than the file holds: it may hold a key that was withdrawn.
        if owner_only_file::is_outdated(&self.file) {
            return Err(CacheError::Outdated);
        }
        // Busy is no error: another process writes the file, so it can be written.
        match owner_only_file::replace(&self.file, &text) {
            Err(error) if error.kind() != ErrorKind::ResourceBusy => {
                return Err(CacheError::Fixed(error));
            }
            _ => {}
        }
        Ok(Some(Found {
            keys,
            fetched: FetchTime::before(Instant::now(), age),
            revocations: content.revocations,
        }))
    }

    pub(super) fn write(&self, content: &Content) -> std::io::Result<()> {
        owner_only_file::replace(&self.file, &(serde_json::to_string_pretty(content)? + "\n"))
    }
}

impl Content {
    /// Returns the content for what is in force at `now`; `None` for a secret, which has no JWK.
    pub(super) fn from_state(
        origin: &KeysOrigin,
        state: &InstalledKeys,
        list: Option<&Revocations>,
        now: i64,
    ) -> Option<Self> {
        let mut jwks = Vec::new();
        for key in state.keys().keys() {
            let mut jwk = key.to_jwk()?;
            // `to_jwk` names each key: a nameless key that is read with a name would verify other tokens.
            if !key.is_named() {
                jwk.common.key_id = None;
            }
            jwks.push(jwk);
        }
        let instant = Instant::now();
        let fetched_at = |age: Duration| now.saturating_sub_unsigned(age.as_secs());
        Some(Self {
            version: VERSION,
            origin: origin.clone(),
            fetched_at: fetched_at(state.age(instant)),
            jwks: serde_json::json!({ "keys": jwks }),
            revocations: list.map(|list| list.cached(fetched_at(list.age(instant)))),
        })
    }

    /// Returns true if `last` has the same keys and list, and nearly the same fetch times.
    pub(super) fn is_covered_by(&self, last: &Self) -> bool {
        let is_near = |time: i64, last: i64| time.abs_diff(last) < TIME_IS_GOOD_FOR;
        let covers_list = match (&self.revocations, &last.revocations) {
            (Some(list), Some(last)) => {
                list.number == last.number
                    && list.list == last.list
                    && is_near(list.fetched_at, last.fetched_at)
            }
            (None, None) => true,
            _ => false,
        };
        covers_list
            && self.origin == last.origin
            && self.jwks == last.jwks
            && is_near(self.fetched_at, last.fetched_at)
    }

    /// Parses the keys like a fetched set, which skips unknown keys; here a skipped key is an error, because
    /// all of the file's keys were in use.
    fn keys(&self, allowed: &[Algorithm]) -> Result<KeySet, CacheError> {
        let keys = KeySet::from_jwks(self.jwks.to_string().as_bytes(), allowed)?;
        match &self.jwks["keys"] {
            // `from_jwks` skips unusable keys: fewer keys than in the file means that it skipped one.
            Value::Array(stored) if stored.len() == keys.keys().len() => Ok(keys),
            _ => Err(CacheError::UnusableKey),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use postern_token::keys::VerificationKey;
    use postern_token::keys::signing_type::SigningType;
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::issuers::current::CurrentKeys;
    use crate::issuers::fingerprint::KeySetFingerprint;
    use crate::issuers::revocations::fetched_list::tests::list_of;
    use crate::issuers::source::auth_server::tests::{ONE, OTHER, set_of};

    pub(crate) const FETCHED_AT: i64 = 1_800_000_000;

    pub(crate) fn settings(home: &TempDir) -> KeyCacheSettings {
        KeyCacheSettings {
            file: home.path().join("keys.json"),
            origin: KeysOrigin {
                source: "http://auth/auth".to_owned(),
                sha256: "00".to_owned(),
            },
            allowed: vec![Algorithm::ES256],
        }
    }

    pub(crate) fn at(seconds: i64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.try_into().unwrap())
    }

    pub(crate) fn named(keys: &[&str]) -> KeySet {
        KeySet::from_jwks(set_of(keys).as_bytes(), &[Algorithm::ES256]).unwrap()
    }

    pub(crate) fn nameless() -> KeySet {
        KeySet::nameless(VerificationKey::parse(SigningType::Ecdsa, ONE).unwrap())
    }

    /// Returns the content for these keys, and a list of these tokens.
    pub(crate) fn content(keys: KeySet, tokens: &[&str], fetched_at: i64) -> Content {
        let current = CurrentKeys::default();
        let list = list_of(&"a".repeat(32), 7, tokens);
        let list = Revocations::new(list, &keys, Instant::now());
        current.install(keys, Instant::now());
        current.list.install(list);
        let home = tempfile::tempdir().unwrap();
        let origin = settings(&home).origin;
        let state = current.load();
        let state = state.as_deref().unwrap();
        let list = current.list.load();
        Content::from_state(&origin, state, list.as_deref(), fetched_at).unwrap()
    }

    fn write(settings: &KeyCacheSettings, keys: KeySet, fetched_at: i64) {
        settings.write(&content(keys, &[], fetched_at)).unwrap();
    }

    fn why_not(settings: &KeyCacheSettings) -> String {
        settings.read(at(FETCHED_AT)).unwrap_err().to_string()
    }

    #[test]
    fn written_keys_and_their_list_are_found_again_with_their_age() {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(&home);
        assert!(settings.read(at(FETCHED_AT)).unwrap().is_none());
        for keys in [named(&[ONE, OTHER]), nameless(), named(&[OTHER])] {
            let names = KeySetFingerprint::new(&keys);
            let content = content(keys, &["x"], FETCHED_AT);
            settings.write(&content).unwrap();
            let found = settings.read(at(FETCHED_AT + 90)).unwrap().unwrap();
            assert_eq!(KeySetFingerprint::new(&found.keys), names);
            assert_eq!(found.revocations, content.revocations);
            let age = found.fetched.age(Instant::now());
            assert!(age >= Duration::from_secs(90) && age < Duration::from_secs(100));
        }
        // Nothing can be written in its place, so it was not kept up to date.
        std::fs::create_dir(home.path().join("keys.json.new")).unwrap();
        why_not(&settings);
    }

    #[test]
    fn a_fetch_in_the_future_is_rejected() {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(&home);
        for fetched_at in [FETCHED_AT + 1, i64::MAX] {
            write(&settings, nameless(), fetched_at);
            assert_eq!(why_not(&settings), CacheError::InTheFuture.to_string());
        }
        // So long ago that the age overflows.
        write(&settings, nameless(), i64::MIN);
        assert!(settings.read(at(FETCHED_AT)).is_err());
    }

    #[test]
    fn broken_files_are_not_used() {
        let home = tempfile::tempdir().unwrap();
        let settings = settings(&home);
        write(&settings, named(&[ONE, OTHER]), FETCHED_AT);
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
            " ".repeat(MAX_FILE_BYTES as usize) + &good,
        ] {
            std::fs::write(&settings.file, &bad).unwrap();
            why_not(&settings);
        }
    }
}
