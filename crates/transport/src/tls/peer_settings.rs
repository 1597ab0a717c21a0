//! The names of the settings of one side of TLS.

/// The names of the settings, for errors and warnings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PeerSettings {
    /// The setting of the authorities.
    pub ca: &'static str,
    /// The setting of the chain.
    pub certificate: &'static str,
    /// The setting of the chain's key.
    pub key: &'static str,
}

impl PeerSettings {
    /// Returns the names that failed connections need: no failure is about the key.
    #[must_use]
    pub const fn without_key(ca: &'static str, certificate: &'static str) -> Self {
        Self {
            ca,
            certificate,
            key: "",
        }
    }
}
