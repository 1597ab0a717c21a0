//! Client IP, through trusted proxies: for limits and logs, never for a permission.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Once;

use http::{Extensions, HeaderMap};
use runtime::net::client_address::TrustedProxies;
use tracing::warn;

/// Set once the warning is logged: any client can send the header.
static UNNAMED_GATEWAY: Once = Once::new();

/// The peer address of the connection, set on each request by the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

pub(crate) fn client_of(
    proxies: &TrustedProxies,
    extensions: &Extensions,
    headers: &HeaderMap,
) -> IpAddr {
    let peer = extensions.get::<Peer>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
    if proxies.miss_a_name(headers) {
        UNNAMED_GATEWAY.call_once(|| warn_of_gateway(peer));
    }
    proxies.client(peer, headers)
}

fn warn_of_gateway(peer: IpAddr) {
    warn!(
        %peer,
        "X-Forwarded-For without --trusted-proxy: if a gateway wrote it, all its clients are one to \
         --login-rate-limit, and wait for each other's failed logins"
    );
}
