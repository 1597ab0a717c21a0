//! The fields of a request on their way to the service: of a head, or after a body.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use pingora::{ErrorType, OrErr};

/// The parts of a head that the rules for requests may read and change.
pub(crate) trait ServiceHead {
    /// Returns true if the request goes to the service over HTTP/2.
    fn is_http_2(&self) -> bool;

    /// Replaces the target.
    fn set_target(&mut self, target: Vec<u8>);

    /// Returns the values of a field, in order.
    fn values<'h>(&'h self, name: &'h HeaderName) -> impl Iterator<Item = &'h [u8]>;

    /// Sets a field in place of all of its name; the service gets the name as it is `written`.
    fn set(&mut self, written: Bytes, value: HeaderValue) -> pingora::Result<()>;

    /// Removes every field of the name.
    fn remove(&mut self, name: &HeaderName);

    /// Removes every field whose name matches, in any case of its letters.
    fn remove_where(&mut self, matches: impl Fn(&str) -> bool);

    /// Returns true if there is a field of the name.
    fn contains(&self, name: &HeaderName) -> bool {
        self.values(name).next().is_some()
    }
}

/// The trailers of a request of HTTP/2.
impl ServiceHead for HeaderMap {
    fn is_http_2(&self) -> bool {
        true
    }

    fn set_target(&mut self, _: Vec<u8>) {}

    fn values<'h>(&'h self, name: &'h HeaderName) -> impl Iterator<Item = &'h [u8]> {
        self.get_all(name).into_iter().map(HeaderValue::as_bytes)
    }

    fn set(&mut self, written: Bytes, value: HeaderValue) -> pingora::Result<()> {
        let name =
            HeaderName::from_bytes(&written).or_err(ErrorType::InvalidHTTPHeader, "field")?;
        self.insert(name, value);
        Ok(())
    }

    fn remove(&mut self, name: &HeaderName) {
        self.remove(name);
    }

    fn remove_where(&mut self, matches: impl Fn(&str) -> bool) {
        for name in matching(self, matches) {
            self.remove(&name);
        }
    }
}

fn matching(fields: &HeaderMap, matches: impl Fn(&str) -> bool) -> Vec<HeaderName> {
    let names = fields.keys();
    names
        .filter(|name| matches(name.as_str()))
        .cloned()
        .collect()
}
