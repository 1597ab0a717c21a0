//! The `[[logout]]` tables of the configuration file: the issuers whose statements end sessions.

use std::path::PathBuf;

use postern_process::command_line::seconds::Seconds;
use postern_process::command_line::texts::{Host, List, Name, Text};
use postern_transport::issuer::key_set::Location;
use serde::{Deserialize, Serialize};

/// Another issuer whose logouts end its tokens at every sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct LogoutTable {
    /// Its `iss`, byte for byte.
    pub(crate) issuer: Text<Name>,
    /// The `aud` of its logout tokens: the client that this server is there, or several.
    pub(crate) client: List<Name>,
    /// The address of its JWK Set, or a file with it; without it, the one that its discovery document names.
    pub(crate) jwks: Option<Text<Location>>,
    /// Further hosts that this document may name.
    pub(crate) jwks_hosts: Option<List<Host>>,
    /// Certificates to trust in place of the system's.
    pub(crate) ca: Option<PathBuf>,
    /// The time for which its access tokens are valid at most, as in 24h, the default: so long they stay ended.
    pub(crate) token_lifetime: Option<Text<Seconds>>,
    /// `session`, the default, or `user`: every token of the user ends, also where the issuer names a session.
    /// For issuers whose access tokens have no `sid`.
    #[serde(default, skip_serializing_if = "LogoutScope::is_default")]
    pub(crate) ends: LogoutScope,
}

impl LogoutTable {
    /// Returns a warning where its keys could be replaced on the way.
    pub(crate) fn warning(&self) -> Option<String> {
        if !self.jwks.as_deref()?.first()?.is_plain_over_a_network() {
            return None;
        }
        Some(format!(
            "[[logout]] {}: jwks: plain HTTP, keys can be replaced on the way",
            self.issuer.as_str()
        ))
    }
}

/// The tokens that a logout ends where the issuer names a session and its user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogoutScope {
    #[default]
    Session,
    User,
}

impl LogoutScope {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
