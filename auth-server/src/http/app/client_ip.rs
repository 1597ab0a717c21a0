//! Client IP, through trusted proxies: for limits and logs, never for a permission.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Once;

use axum::extract::{ConnectInfo, Request};
use http::Extensions;
use postern_transport::net::client_address::TrustedProxies;
use tracing::warn;

/// Set once the warning is logged: any client can send the header.
static UNNAMED_GATEWAY: Once = Once::new();

static NO_ADDRESS: Once = Once::new();

const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The client of a request: an extension of every request, which the outermost layer adds.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct ClientIp(pub(in crate::http) IpAddr);

impl ClientIp {
    /// Returns the client of a request, as its peer and its header fields have it.
    pub(in crate::http) fn received(proxies: &TrustedProxies, request: &Request) -> Self {
        let headers = request.headers();
        let peer = match request.extensions().get::<ConnectInfo<SocketAddr>>() {
            Some(peer) => peer.0.ip(),
            None => UNKNOWN,
        };
        if proxies.lacks_proxy_for(headers) {
            UNNAMED_GATEWAY.call_once(|| warn_of_gateway(peer));
        }
        if proxies.forwards_no_address(peer, headers) {
            NO_ADDRESS.call_once(|| {
                warn!(%peer, "X-Forwarded-For of a trusted proxy holds no address: all its clients are one");
            });
        }
        Self(proxies.client(peer, headers))
    }

    /// Returns the client that the outermost layer has added.
    pub(in crate::http) fn added_to(extensions: &Extensions) -> IpAddr {
        extensions.get().map_or(UNKNOWN, |Self(client)| *client)
    }
}

fn warn_of_gateway(peer: IpAddr) {
    warn!(
        %peer,
        "X-Forwarded-For without --trusted-proxy: if a gateway wrote it, all its clients are one to \
         --login-rate-limit, and wait for each other's failed logins"
    );
}
