//! An instance of a service, as the registry lists it.

use std::collections::BTreeMap;

/// The address of one process of a service, with its state in the registry.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// Address or name, as it was registered; an IPv6 address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Share of the requests, relative to the other instances; 0: no requests.
    pub weight: f64,
    /// Result of the registry's own health checks.
    pub healthy: bool,
    /// False if the operator has switched the instance off.
    pub enabled: bool,
    /// Metadata for its registration.
    pub metadata: BTreeMap<&'static str, String>,
}

impl Instance {
    /// Makes a usable instance without metadata.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            weight: 1.0,
            healthy: true,
            enabled: true,
            metadata: BTreeMap::new(),
        }
    }

    /// Returns true if the instance may get requests.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        // NaN and infinity are invalid weights.
        self.healthy && self.enabled && self.weight > 0.0 && self.weight.is_finite()
    }

    /// Returns `host:port`, with brackets around an IPv6 address.
    #[must_use]
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_for_a_url() {
        for (host, authority) in [
            ("10.0.0.1", "10.0.0.1:9000"),
            ("auth", "auth:9000"),
            ("::1", "[::1]:9000"),
            ("[::1]", "[::1]:9000"),
        ] {
            assert_eq!(Instance::new(host, 9000).authority(), authority);
        }
    }

    #[test]
    fn an_ill_disabled_or_weightless_instance_gets_no_request() {
        let usable = Instance::new("a", 1);
        assert!(usable.is_usable());
        let with = |weight, healthy, enabled| Instance {
            weight,
            healthy,
            enabled,
            ..usable.clone()
        };
        for unusable in [
            with(0.0, true, true),
            with(-1.0, true, true),
            with(f64::NAN, true, true),
            with(f64::INFINITY, true, true),
            with(1.0, false, true),
            with(1.0, true, false),
        ] {
            assert!(!unusable.is_usable(), "{unusable:?}");
        }
    }
}
