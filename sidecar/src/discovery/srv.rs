//! A service name whose SRV records (RFC 2782) hold host and port of each instance.

use std::fmt;
use std::net::SocketAddr;

use hickory_resolver::proto::rr::rdata::SRV;

use super::resolver::{Resolver, in_time};
use super::{DiscoveryError, Instance, RecentAttempts};

/// `_auth._tcp.internal`, or any other name with SRV records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SrvName {
    name: String,
    /// Queried in place of those of `/etc/resolv.conf`.
    pub(crate) name_server: Option<SocketAddr>,
}

/// One SRV record.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SrvTarget {
    priority: u16,
    weight: u16,
    host: String,
    port: u16,
}

impl SrvName {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            name_server: None,
        }
    }

    /// Returns the name without its service labels. A certificate has to name it: the targets of
    /// the records are the name server's choice, not the operator's (RFC 6125 §6.2.1).
    pub(crate) fn domain(&self) -> &str {
        let mut domain = self.name.trim_end_matches('.');
        while let Some((label, rest)) = domain.split_once('.')
            && label.starts_with('_')
        {
            domain = rest;
        }
        domain
    }

    /// Looks up the records now and chooses among them.
    pub(crate) async fn next_instance(
        &self,
        attempts: &RecentAttempts,
    ) -> Result<Instance, DiscoveryError> {
        let none = || DiscoveryError::NoAddress {
            name: self.name.clone(),
        };
        let found = in_time(&self.name, self.lookup(attempts)).await?;
        let (service, address) = found.ok_or_else(none)?;
        Ok(Instance {
            authority: service.authority(),
            address: Some(address),
            host: format!("{}:{}", self.domain(), service.port),
        })
    }

    async fn lookup(
        &self,
        attempts: &RecentAttempts,
    ) -> std::io::Result<Option<(SrvTarget, SocketAddr)>> {
        let resolver = Resolver::new(self.name_server)?;
        let records = resolver.services(&self.name).await?;
        let services = records.iter().filter_map(SrvTarget::of).collect();
        let services = attempts.not_failed(services, SrvTarget::authority);
        let Some(service) = chosen(services, |end| fastrand::u64(..end)) else {
            return Ok(None);
        };
        let addresses = resolver.addresses(&service.host).await?;
        let address = fastrand::choice(addresses);
        Ok(address.map(|address| {
            let address = SocketAddr::new(address, service.port);
            (service, address)
        }))
    }
}

impl SrvTarget {
    /// Returns `None` for the target `.`, which means that there is no such service (RFC 2782).
    fn of(record: &SRV) -> Option<Self> {
        (!record.target.is_root()).then(|| Self {
            priority: record.priority,
            weight: record.weight,
            host: record.target.to_ascii(),
            port: record.port,
        })
    }

    fn authority(&self) -> String {
        format!("{}:{}", self.host.trim_end_matches('.'), self.port)
    }
}

/// Chooses one of the lowest priority value, by weight. `random` gives a number below its argument.
fn chosen(mut services: Vec<SrvTarget>, random: impl Fn(u64) -> u64) -> Option<SrvTarget> {
    let first = services.iter().map(|service| service.priority).min()?;
    services.retain(|service| service.priority == first);
    // A weight of 0 is a small chance (RFC 2782), and an equal one where all weights are 0.
    let total: u64 = services.iter().map(SrvTarget::share).sum();
    let mut point = random(total);
    services.into_iter().find(|service| {
        let hit = point < service.share();
        point = point.saturating_sub(service.share());
        hit
    })
}

impl SrvTarget {
    /// Counts a weight of 1 a hundredfold against a weight of 0.
    fn share(&self) -> u64 {
        match self.weight {
            0 => 1,
            weight => u64::from(weight) * 100,
        }
    }
}

impl fmt::Display for SrvName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(host: &str, priority: u16, weight: u16) -> SrvTarget {
        SrvTarget {
            priority,
            weight,
            host: format!("{host}."),
            port: 9000,
        }
    }

    /// Counts how often each host is chosen when every possible point is drawn once.
    fn shares(services: &[SrvTarget]) -> Vec<(String, u32)> {
        let total = std::cell::Cell::new(1);
        let mut shares: Vec<(String, u32)> = Vec::new();
        for point in 0.. {
            let drawn = chosen(services.to_vec(), |end| {
                total.set(end);
                point
            });
            if point >= total.get() {
                break;
            }
            let authority = drawn.map_or(String::new(), |service| service.authority());
            match shares.iter_mut().find(|(host, _)| *host == authority) {
                Some((_, count)) => *count += 1,
                None => shares.push((authority, 1)),
            }
        }
        shares
    }

    #[test]
    fn rfc_2782_lowest_priority_first_then_by_weight() {
        for (services, expected) in [
            (
                vec![service("a", 10, 0), service("b", 5, 0), service("c", 10, 9)],
                vec![("b:9000", 1)],
            ),
            (
                vec![service("a", 0, 1), service("b", 0, 3)],
                vec![("a:9000", 100), ("b:9000", 300)],
            ),
            (
                vec![service("a", 0, 0), service("b", 0, 0)],
                vec![("a:9000", 1), ("b:9000", 1)],
            ),
            (
                vec![service("a", 0, 0), service("b", 0, 2)],
                vec![("a:9000", 1), ("b:9000", 200)],
            ),
        ] {
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(host, count)| (host.to_owned(), count))
                .collect();
            assert_eq!(shares(&services), expected);
        }
        assert_eq!(chosen(Vec::new(), |_| 0), None);
        let heaviest: Vec<_> = (0..2000).map(|_| service("a", 0, u16::MAX)).collect();
        assert!(chosen(heaviest, |end| end - 1).is_some(), "no overflow");
    }

    #[test]
    fn rfc_6125_a_certificate_names_the_domain_not_the_target() {
        for (name, domain) in [
            ("_auth._tcp.internal", "internal"),
            ("_auth._tcp.auth.internal.", "auth.internal"),
            ("auth.service.consul", "auth.service.consul"),
            ("_odd", "_odd"),
        ] {
            assert_eq!(SrvName::new(name).domain(), domain);
        }
    }
}
