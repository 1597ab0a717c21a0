//! Who asked, for limits and logs; never a permission.

use std::net::{IpAddr, Ipv4Addr};

use http::{Extensions, HeaderMap};
use process::client_address::TrustedProxies;

/// The connection's own other end, put into each request by the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The client of a request.
pub(crate) fn client_of(
    proxies: &TrustedProxies,
    extensions: &Extensions,
    headers: &HeaderMap,
) -> IpAddr {
    let peer = extensions.get::<Peer>();
    let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    proxies.client(peer.map_or(unknown, |peer| peer.0), headers)
}
