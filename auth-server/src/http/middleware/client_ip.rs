//! Who asked, for limits and logs; never a permission.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Once;

use http::{Extensions, HeaderMap};
use runtime::client_address::TrustedProxies;
use tracing::warn;

/// Anybody can write the header field: one line says it, and no flood of them.
static UNNAMED_GATEWAY: Once = Once::new();

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
         --login-rate, and wait for each other's failed logins"
    );
}
