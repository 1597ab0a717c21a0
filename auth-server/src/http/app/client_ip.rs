//! Client IP, through trusted proxies: for limits and logs, never for a permission.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Once;

use axum::extract::ConnectInfo;
use http::{Extensions, HeaderMap};
use tracing::warn;

use super::App;

/// Set once the warning is logged: any client can send the header.
static UNNAMED_GATEWAY: Once = Once::new();

static NO_ADDRESS: Once = Once::new();

impl App {
    /// Returns the client of a request.
    pub(crate) fn client_of(&self, extensions: &Extensions, headers: &HeaderMap) -> IpAddr {
        let proxies = &self.config.trusted_proxies;
        let peer = match extensions.get::<ConnectInfo<SocketAddr>>() {
            Some(peer) => peer.0.ip(),
            None => Ipv4Addr::UNSPECIFIED.into(),
        };
        if proxies.lacks_proxy_for(headers) {
            UNNAMED_GATEWAY.call_once(|| warn_of_gateway(peer));
        }
        if proxies.forwards_no_address(peer, headers) {
            NO_ADDRESS.call_once(|| {
                warn!(%peer, "X-Forwarded-For of a trusted proxy holds no address: all its clients are one");
            });
        }
        proxies.client(peer, headers)
    }
}

fn warn_of_gateway(peer: IpAddr) {
    warn!(
        %peer,
        "X-Forwarded-For without --trusted-proxy: if a gateway wrote it, all its clients are one to \
         --login-rate-limit, and wait for each other's failed logins"
    );
}
