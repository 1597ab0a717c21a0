//! The settings of a client.

use std::path::PathBuf;
use std::time::Duration;

use super::proxy::KeysProxy;
use crate::tls::peer_settings::PeerSettings;

/// The settings of a client, except the files that it follows. By default no connection is kept.
#[derive(Debug, Clone, Default)]
pub struct ClientSettings {
    /// The servers that the client trusts.
    pub trust: Trust,
    /// The settings that failures name.
    pub named: PeerSettings,
    /// The followed files in words, for the log.
    pub files: &'static str,
    /// The proxy to servers with https.
    pub proxy: Option<KeysProxy>,
    /// A Unix socket in place of the address of every URL.
    pub socket: Option<PathBuf>,
    /// Timeout from connecting to the last byte.
    pub timeout: Duration,
    /// Timeout of connecting, which the addresses of a name share: each leaves time for the next.
    pub connect_timeout: Option<Duration>,
    /// Time for which a connection is kept for another request.
    pub kept: Duration,
    /// The name of the program.
    pub user_agent: Option<&'static str>,
    /// True where each request is a span.
    pub is_traced: bool,
}

/// The servers that a client trusts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Trust {
    /// No request is for https: the system's certificates are not loaded.
    #[default]
    NoTls,
    /// Certificates of the authorities in the files, or of the system's.
    Authorities,
    /// Any certificate.
    Anyone,
}

impl Trust {
    /// Returns the trust of a client whose requests may be for https.
    #[must_use]
    pub const fn for_https(is_https: bool) -> Self {
        if is_https {
            Self::Authorities
        } else {
            Self::NoTls
        }
    }
}
