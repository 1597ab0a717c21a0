//! The client's address: the peer of the connection, or behind trusted proxies the address that they forward.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
pub use ipnet::IpNet;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// The networks of the trusted proxies; without any, no header field is trusted.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Trusts the proxies of these networks.
    #[must_use]
    pub const fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    /// Returns the client of a request that came from `peer`, for limits and logs, never for a
    /// permission: the right-most address that is not a trusted proxy's.
    #[must_use]
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        for hop in hops_from_the_right(headers) {
            // An address in the field counts only if a trusted proxy has written it.
            if !self.trusts(client) {
                break;
            }
            match parse(hop) {
                Some(address) => client = address,
                // The proxy itself is the nearest address that is known.
                None => break,
            }
        }
        client
    }

    /// Returns true for a request with a forwarded address, if no trusted proxy is configured.
    #[must_use]
    pub fn lacks_proxy_for(&self, headers: &HeaderMap) -> bool {
        self.0.is_empty() && headers.contains_key(FORWARDED_FOR)
    }

    /// Returns true for a trusted proxy that forwards text that is no address.
    #[must_use]
    pub fn forwards_no_address(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        let mut hops = hops_from_the_right(headers);
        self.trusts(peer) && hops.next().is_some_and(|hop| parse(hop).is_none())
    }

    /// Returns true for the address of a trusted proxy.
    #[must_use]
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

fn hops_from_the_right(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let fields = headers.get_all(FORWARDED_FOR).into_iter();
    // A field that is not text breaks the chain: the addresses left of it are not trusted.
    fields
        .rev()
        .flat_map(|field| field.to_str().unwrap_or("?").rsplit(','))
}

/// Parses an address as proxies write it, with or without a port.
fn parse(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim();
    let address = hop
        .strip_prefix('[')
        .and_then(|hop| hop.strip_suffix(']'))
        .unwrap_or(hop)
        .parse()
        .ok();
    address
        .or_else(|| hop.parse().ok().map(|socket: SocketAddr| socket.ip()))
        .map(|address| address.to_canonical())
}

/// Parses a network as the list of `--trusted-proxy` has it: a CIDR prefix or one address.
///
/// # Errors
/// The expected form.
pub fn parse_network(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| {
            "expected a network such as 10.0.0.0/8, or an address; commas separate several"
                .to_owned()
        })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn client(peer: &str, fields: &[&str]) -> String {
        let networks = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"];
        let trusted = networks.map(|network| parse_network(network).unwrap());
        let name = HeaderName::from_static(FORWARDED_FOR);
        let value = |field: &&str| HeaderValue::from_bytes(field.as_bytes()).unwrap();
        let headers = fields
            .iter()
            .map(|field| (name.clone(), value(field)))
            .collect();
        let proxies = TrustedProxies::new(trusted.to_vec());
        proxies.client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn only_what_trusted_proxies_verify_is_believed() {
        let chain = "1.1.1.1, 203.0.113.9, 10.2.3.4";
        for (peer, fields, expected) in [
            ("203.0.113.9", &[][..], "203.0.113.9"),
            ("203.0.113.9", &["1.1.1.1"], "203.0.113.9"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("::ffff:10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("192.0.2.7", &["203.0.113.9"], "203.0.113.9"),
            // The client's own entries stand further left.
            ("10.0.0.1", &["1.1.1.1, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["1.1.1.1", "203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &[chain], "203.0.113.9"),
            (
                "10.0.0.1",
                &["203.0.113.9", "10.2.3.4 ,2001:db8::5"],
                "203.0.113.9",
            ),
            ("10.0.0.1", &["10.9.9.9, 10.2.3.4"], "10.9.9.9"),
            ("10.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
            ("10.0.0.1", &["[2001:db9::1]:4711"], "2001:db9::1"),
            ("10.0.0.1", &["[2001:db9::1]"], "2001:db9::1"),
            // An unreadable entry ends the chain at the proxy that forwarded it.
            ("10.0.0.1", &["203.0.113.9, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9, unknown, 10.2.3.4"], "10.2.3.4"),
            ("10.0.0.1", &["203.0.113.9,"], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9", "gr\u{f6}\u{df}e"], "10.0.0.1"),
        ] {
            assert_eq!(client(peer, fields), expected, "{peer} {fields:?}");
        }
    }

    #[test]
    fn a_network_is_a_prefix_or_an_address() {
        let network = parse_network(" 10.0.0.0/8\n");
        assert_eq!(network.unwrap().to_string(), "10.0.0.0/8");
        for text in ["", "10.0.0.0/33", "proxy", "10.0.0.1-10.0.0.9"] {
            assert!(parse_network(text).is_err(), "{text}");
        }
    }
}
