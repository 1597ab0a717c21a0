//! The checks of a received head.

use crate::invalid::InvalidRequest;
use crate::path::canonical;
use crate::path::destination::Destination;
use crate::{host, methods};
use http::{HeaderValue, Version, header};

use crate::only_field::only_field;
use crate::request::received::ReceivedHead;
use crate::request::target::{self, Target};
use crate::request::{http1, http2};

impl ReceivedHead {
    /// Checks the framing, the host, the method and the destination, then returns the target.
    ///
    /// # Errors
    /// A rejection of a head that two parsers could read differently.
    pub fn checked_target(&self) -> Result<Target<'_>, InvalidRequest> {
        let is_http_2 = self.version == Version::HTTP_2;
        if is_http_2 {
            http2::check(self.target(), &self.headers)?;
        } else {
            http1::check(&self.headers)?;
        }
        self.framing?;
        self.check_host()?;
        // Before the target: CONNECT has no path. After the framing: the connection stays open.
        methods::check(&self.method)?;
        if let Some(destination) = Destination::from_request(&self.method, &self.headers)? {
            destination.check_host(self.host())?;
        }
        Target::parse(self.target(), is_http_2)
    }

    /// Names the part for which the target is not canonical, for a log too: nothing of a query.
    pub fn rejected_part(&self) -> String {
        if self.target().contains(&b'#') {
            return "the target holds a fragment, `#`".to_owned();
        }
        match Target::parse(self.target(), self.version == Version::HTTP_2) {
            Ok(target) => canonical::rejected_part(target.path()),
            Err(_) => "the target is no path, and no http URL with a host".to_owned(),
        }
    }

    /// Checks that the request names one host: HTTP/2 in its authority, in a field or alike in both,
    /// HTTP/1.1 in a field, beside the one of an absolute target.
    fn check_host(&self) -> Result<(), InvalidRequest> {
        // A gateway and the service would route by different ones (RFC 9112 §3.2).
        let Ok(field) = only_field(&self.headers, &header::HOST) else {
            return Err(InvalidRequest::Malformed);
        };
        let named = match (self.authority(), field.map(HeaderValue::as_bytes)) {
            (Some(authority), Some(field)) if authority != field => {
                return Err(InvalidRequest::Malformed);
            }
            (Some(authority), _) => Some(authority),
            (None, field) => field,
        };
        // A plain health check: RFC 9112 §3.2 requires the field in HTTP/1.1 alone.
        let may_lack = self.version == Version::HTTP_10 && self.target().starts_with(b"/");
        if named.is_some() || !may_lack {
            host::check(named)?;
        }
        match target::authority(self.target()) {
            None => Ok(()),
            host => host::check(host),
        }
    }

    /// Returns the host that the request names.
    pub fn host(&self) -> Option<&[u8]> {
        if let Some(authority) = self.authority() {
            return Some(authority);
        }
        match target::authority(self.target()) {
            None => Some(self.headers.get(header::HOST)?.as_bytes()),
            // The host of an absolute target counts more than the field (RFC 9112 §3.2.2).
            host => host,
        }
    }

    /// Returns true if the client may omit the body after a response.
    pub fn expects_continue(&self) -> bool {
        self.headers.contains_key(header::EXPECT)
    }

    /// Returns true if a body follows.
    pub const fn has_body(&self) -> bool {
        !self.body.is_done()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use bytes::BytesMut;
    use http::Request;

    use super::*;
    use crate::request::{MAX_HEAD_BYTES, MAX_HEAD_LINES, received};

    fn checked(raw: &str) -> Result<(), InvalidRequest> {
        let head = received::take(&mut BytesMut::from(raw.as_bytes()))?;
        head.unwrap().checked_target().map(drop)
    }

    /// Checks a head of HTTP/2.
    fn checked_stream(uri: &str, fields: &[(&str, &str)]) -> Result<(), InvalidRequest> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        ReceivedHead::from_stream(parts, false)
            .checked_target()
            .map(drop)
    }

    #[test]
    fn connection_fields_and_ambiguous_framing_are_rejected() {
        for fields in [
            &[][..],
            &[("content-length", "3")],
            &[("te", "trailers"), ("host", "a")],
            &[("x-content-length", "3, 3")],
        ] {
            assert_eq!(checked_stream("http://a/", fields), Ok(()), "{fields:?}");
        }
        for fields in [
            &[("connection", "close")][..],
            &[("transfer-encoding", "chunked")],
            &[("upgrade", "websocket")],
            &[("keep-alive", "1")],
            &[("proxy-connection", "close")],
            &[("content_length", "3")],
            &[("content-length", "3"), ("content-length", "3")],
        ] {
            let rejected = checked_stream("http://a/", fields);
            assert_eq!(rejected, Err(InvalidRequest::Framing), "{fields:?}");
        }
    }

    #[test]
    fn the_limits_of_both_versions_are_the_same() {
        let too_large = Err(InvalidRequest::HeaderTooLarge);
        for (length, expected) in [(MAX_HEAD_BYTES / 2, Ok(())), (MAX_HEAD_BYTES, too_large)] {
            let value = "a".repeat(length);
            let raw = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {value}\r\n\r\n");
            assert_eq!(checked(&raw), expected, "{length}");
            assert_eq!(checked_stream("http://a/", &[("x", &value)]), expected);
        }
        let many = [("x", "1"); MAX_HEAD_LINES + 1];
        assert_eq!(checked_stream("http://a/", &many), too_large);
    }
}
