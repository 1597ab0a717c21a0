//! One address, written down in the configuration.

use std::fmt;

use http::uri::Authority;

use super::Instance;

/// `host` or `host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FixedAddress {
    authority: String,
}

impl FixedAddress {
    pub(crate) fn new(authority: &Authority) -> Self {
        Self {
            authority: authority.as_str().to_owned(),
        }
    }

    pub(crate) fn instance(&self) -> Instance {
        Instance {
            authority: self.authority.clone(),
            host: self.authority.clone(),
        }
    }
}

impl fmt::Display for FixedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}
