//! The issuers: each has one task, which fetches its keys and publishes them for the requests.

pub(crate) mod cache;
pub(crate) mod cache_file;
pub(crate) mod current;
pub(crate) mod fetch_time;
pub(crate) mod fingerprint;
pub(crate) mod installed_keys;
pub(crate) mod issuer_keys;
pub(crate) mod key_metrics;
pub(crate) mod on_demand;
pub(crate) mod readiness;
pub(crate) mod revocations;
pub(crate) mod server_clock;
pub(crate) mod source;
pub(crate) mod task;
pub(crate) mod token_cache;

use std::time::Duration;

use postern_process::exit::ExitError;

use self::cache_file::KeyCacheSettings;
use self::source::{KeySource, SourceSettings};

/// The settings of one issuer.
#[derive(Debug, Clone)]
pub(crate) struct IssuerSettings {
    /// `None` for the only issuer.
    pub(crate) name: Option<String>,
    pub(crate) source: SourceSettings,
    pub(crate) key_cache: Option<KeyCacheSettings>,
    /// The age up to which a revocation list counts; `None` where none is required.
    pub(crate) max_revocation_age: Option<Duration>,
}

impl IssuerSettings {
    /// Opens the source; returns a warning about an expired certificate, or about unusable files of one of
    /// several issuers: the others do not need these files, and each fetch reads them again.
    ///
    /// # Errors
    /// [`ExitError::Config`] for files of the only issuer.
    pub(crate) fn open(&self) -> Result<(KeySource, Option<String>), ExitError> {
        let mut source = KeySource::new(self.source.clone());
        let warning = match (source.open(), &self.name) {
            (Ok(warning), _) => warning,
            (Err(why), Some(_)) if self.source.is_list_alone() => Some(why),
            (Err(why), Some(name)) => Some(format!("[[issuer]] {name}: {why}")),
            (Err(why), None) => return Err(ExitError::Config(why)),
        };
        Ok((source, warning))
    }
}
