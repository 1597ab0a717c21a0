//! One address from the configuration.

use std::fmt;

use http::uri::Authority;

use super::Instance;

/// `host` or `host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FixedAddress {
    authority: Authority,
}

impl FixedAddress {
    pub(crate) fn new(authority: &Authority) -> Self {
        Self {
            authority: authority.clone(),
        }
    }

    pub(crate) fn host(&self) -> &str {
        self.authority.host()
    }

    pub(crate) fn instance(&self) -> Instance {
        Instance {
            authority: self.authority.to_string(),
            address: None,
            host: self.authority.to_string(),
        }
    }
}

impl fmt::Display for FixedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.authority)
    }
}
