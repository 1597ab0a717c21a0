//! Fields of a request's log record.

use std::net::IpAddr;

use http::HeaderMap;
use pingora::protocols::l4::socket::SocketAddr as ServiceAddress;
use wire::rejection::Rejection;

use super::AuthProxy;
use crate::auth::authorize::Forward;
use crate::config::live::Rules;
use crate::telemetry::outcome::Outcome;

impl AuthProxy {
    /// Returns the client's IP, through trusted proxies.
    pub(in crate::proxy) fn client_ip(
        &self,
        address: Option<IpAddr>,
        received: &HeaderMap,
    ) -> Option<IpAddr> {
        let proxies = &self.request_logger.trusted_proxies;
        Some(proxies.client(address?, received))
    }

    /// Returns the name of a verified user for the access log.
    pub(in crate::proxy) fn logged_user(
        &self,
        rules: &Rules,
        forward: Option<&Forward>,
    ) -> Option<String> {
        let verified = forward?.verified.as_ref()?;
        let header = &rules.auth_policy.user_header;
        let details = || header.user(&verified.identity).ok();
        self.request_logger.logged_user.name(details)
    }

    /// Returns the address at which the upstream failed, or the configured one if it has no
    /// address.
    pub(in crate::proxy) fn failed_upstream_addr(
        &self,
        outcome: Outcome,
        failed_at: Option<&ServiceAddress>,
    ) -> Option<String> {
        use Rejection::{UpstreamMalformed, UpstreamTimeout, UpstreamUnavailable};
        let Outcome::Rejected(UpstreamMalformed | UpstreamTimeout | UpstreamUnavailable) = outcome
        else {
            return None;
        };
        Some(failed_at.map_or_else(|| self.upstream.address().to_string(), ToString::to_string))
    }
}
