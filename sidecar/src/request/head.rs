//! The checks of a received head.

use http::{HeaderValue, Version, header};
use wire::http::destination::Destination;
use wire::interceptor::check_method;
use wire::rejection::Rejection;

use crate::request::received::ReceivedHead;
use crate::request::target::{self, Target};
use crate::request::{http1, http2};

impl ReceivedHead {
    /// Checks the framing, the host, the method and the destination, then returns the target.
    ///
    /// # Errors
    /// A rejection of a head that two parsers could read differently.
    pub(crate) fn checked_target(&self) -> Result<Target<'_>, Rejection> {
        let is_http_2 = self.version == Version::HTTP_2;
        if is_http_2 {
            http2::check(self.authority(), self.target(), &self.headers)?;
        } else {
            http1::check(self)?;
        }
        // Before the target: CONNECT has no path. After the framing: the connection stays open.
        check_method(&self.method)?;
        if let Some(destination) = Destination::of(&self.method, &self.headers)? {
            destination.check_host(self.host())?;
        }
        Target::parse(self.target(), is_http_2)
    }

    /// Returns the host that the request names.
    pub(crate) fn host(&self) -> Option<&[u8]> {
        let field = || self.headers.get(header::HOST).map(HeaderValue::as_bytes);
        let of_target = || target::authority(self.target());
        self.authority().or_else(of_target).or_else(field)
    }

    /// Returns true if a body follows.
    pub(crate) const fn has_body(&self) -> bool {
        !self.body.is_done()
    }
}
