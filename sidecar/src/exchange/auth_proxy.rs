//! Facts about a request that the parts of the program know together.

use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::protocols::l4::socket::SocketAddr as ServiceAddress;
use runtime::process::clock::unix_now;
use wire::rejection::Rejection;

use crate::app::App;
use crate::config::live::Rules;
use crate::decision::authorize::Forward;
use crate::telemetry::outcome::Outcome;
use crate::telemetry::request_id::RequestIds;

/// The end of a stream by an event.
pub(crate) type StreamEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

impl App {
    /// Returns the client's IP, through trusted proxies.
    pub(super) fn client_ip(
        &self,
        address: Option<IpAddr>,
        received: &HeaderMap,
    ) -> Option<IpAddr> {
        let proxies = &self.request_logger.trusted_proxies;
        Some(proxies.client(address?, received))
    }

    /// Returns the name of a verified user for the access log.
    pub(super) fn logged_user(&self, rules: &Rules, forward: Option<&Forward>) -> Option<String> {
        let verified = forward?.verified.as_ref()?;
        let header = &rules.auth_policy.user_header;
        let details = || header.user(&verified.identity).ok();
        self.request_logger.logged_user.name(details)
    }

    /// Returns the address at which the upstream failed, or the configured one if it has no
    /// address.
    pub(super) fn failed_upstream_addr(
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

    /// Returns the headers of all our own responses: CORS and the request id.
    pub(super) fn common_response_headers(
        rules: &Rules,
        ids: &RequestIds,
        received: &HeaderMap,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let origins = rules.auth_policy.interceptor.allowed_origins();
        let mut fields = origins.response_fields(received);
        fields.extend(ids.echo());
        fields
    }

    /// Returns the revocation of the token, which ends a stream; `None` if no token does.
    pub(super) fn revocation(&self, forward: &Forward) -> Option<StreamEnd> {
        let verified = forward
            .verified
            .as_ref()
            .filter(|_| self.close_streams_on_expiry)?;
        // The list is about the tokens of its own issuer.
        let keys = self.keys.get(verified.issuer)?;
        Some(Box::pin(keys.revoked(verified.digests)))
    }

    /// Returns the time after which a stream has to end; `None` if no token ends it.
    pub(super) fn token_time_left(&self, forward: &Forward) -> Option<Duration> {
        let ends_at = forward.ends_at.filter(|_| self.close_streams_on_expiry)?;
        let left = u64::try_from(ends_at.saturating_sub(unix_now())).unwrap_or_default();
        Some(Duration::from_secs(left))
    }

    /// Returns the time for one part of a plain response to a request for a stream. The client has
    /// its write timeout for each part too.
    pub(super) fn part_timeout(&self) -> Option<Duration> {
        let both = self
            .upstream
            .read_timeout()
            .zip(self.downstream_write_timeout);
        both.map(|(read, send)| read.saturating_add(send))
    }
}
