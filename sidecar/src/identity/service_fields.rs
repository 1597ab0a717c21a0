//! The fields of a request on their way to the service: of a head, or behind a body.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

/// Received fields without those that were removed, and with those that were set.
pub(crate) struct ServiceFields<'r> {
    left: SmallVec<[(&'r str, &'r [u8]); 16]>,
    set: SmallVec<[(Bytes, HeaderValue); 6]>,
}

impl<'r> ServiceFields<'r> {
    pub(crate) fn of(received: impl Iterator<Item = (&'r str, &'r [u8])>) -> Self {
        Self {
            left: received.collect(),
            set: SmallVec::new(),
        }
    }

    /// Puts a field before all others, in place of all of its name.
    pub(crate) fn lead_with(&mut self, name: &'static str, value: &'r [u8]) {
        self.remove(name);
        self.left.insert(0, (name, value));
    }

    /// Returns names and values, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let left = self.left.iter();
        let left = left.map(|(name, value)| (name.as_bytes(), *value));
        let set = self.set.iter();
        left.chain(set.map(|(name, value)| (&**name, value.as_bytes())))
    }

    /// Returns the values of a field, in order.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let is_named = |other: &[u8]| name.as_bytes().eq_ignore_ascii_case(other);
        let fields = self.iter();
        fields.filter_map(move |(other, value)| is_named(other).then_some(value))
    }

    /// Returns true if there is a field of the name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// Sets a field in place of all of its name; the service gets the name as it is `written`.
    pub(crate) fn set(&mut self, written: impl Into<Bytes>, value: HeaderValue) {
        let written = written.into();
        let is_other = |name: &[u8]| !name.eq_ignore_ascii_case(&written);
        self.left.retain(|(name, _)| is_other(name.as_bytes()));
        self.set.retain(|(name, _)| is_other(name));
        self.set.push((written, value));
    }

    /// Sets a field to what was made of received values; an empty one leaves no field.
    pub(crate) fn set_made(&mut self, written: &'static str, value: Vec<u8>) {
        match HeaderValue::from_maybe_shared(Bytes::from(value)) {
            Ok(value) if !value.is_empty() => self.set(written, value),
            // Parts of values are a value: no error is possible.
            _ => self.remove(written),
        }
    }

    /// Removes every field of the name.
    pub(crate) fn remove(&mut self, name: &str) {
        self.remove_where(|other| other.eq_ignore_ascii_case(name));
    }

    /// Removes every field whose name matches, in any case of its letters.
    pub(crate) fn remove_where(&mut self, matches: impl Fn(&str) -> bool) {
        self.left.retain(|(name, _)| !matches(name));
        // A name that is not text cannot be compared, and does not stay.
        self.set
            .retain(|(name, _)| str::from_utf8(name).is_ok_and(|name| !matches(name)));
    }

    /// Returns the fields for HTTP/2.
    pub(crate) fn to_map(&self) -> HeaderMap {
        let field = |(name, value)| {
            let name = HeaderName::from_bytes(name).ok()?;
            Some((name, HeaderValue::from_bytes(value).ok()?))
        };
        self.iter().filter_map(field).collect()
    }
}
