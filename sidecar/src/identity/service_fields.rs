//! The fields of a request on their way to the service: of a head, or after a body.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

/// Received fields without those that were removed, and with those that were set.
pub(crate) struct ServiceFields<'r> {
    left: SmallVec<[(&'r str, &'r [u8]); 16]>,
    set: SmallVec<[(Bytes, HeaderValue); 6]>,
}

impl<'r> ServiceFields<'r> {
    pub(crate) fn from_received(received: impl Iterator<Item = (&'r str, &'r [u8])>) -> Self {
        Self {
            left: received.collect(),
            set: SmallVec::new(),
        }
    }

    /// Puts a field before all others, in place of all fields of its name.
    pub(crate) fn lead_with(&mut self, name: &'static str, value: &'r [u8]) {
        self.remove(name);
        self.left.insert(0, (name, value));
    }

    /// Returns names and values, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let set = self.set.iter();
        self.left
            .iter()
            .map(|(name, value)| (name.as_bytes(), *value))
            .chain(set.map(|(name, value)| (&**name, value.as_bytes())))
    }

    /// Returns the values of a field, in order.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.iter()
            .filter(|(other, _)| name.as_bytes().eq_ignore_ascii_case(other))
            .map(|(_, value)| value)
    }

    /// Returns true if there is a field of the name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    /// Sets a field in place of all fields of its name; the service gets the name as it is `written`.
    pub(crate) fn set(&mut self, written: impl Into<Bytes>, value: HeaderValue) {
        let written = written.into();
        let is_other = |name: &[u8]| !name.eq_ignore_ascii_case(&written);
        self.left.retain(|(name, _)| is_other(name.as_bytes()));
        self.set.retain(|(name, _)| is_other(name));
        self.set.push((written, value));
    }

    /// Sets a field to a `value` that was made of received values; an empty value leaves no field.
    pub(crate) fn set_made(&mut self, written: &'static str, value: Vec<u8>) {
        match HeaderValue::from_maybe_shared(Bytes::from(value)) {
            Ok(value) if !value.is_empty() => self.set(written, value),
            // Parts of valid values make a valid value: no error is possible.
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
        self.set.retain(|(name, _)| match str::from_utf8(name) {
            Ok(name) => !matches(name),
            Err(_) => false,
        });
    }

    /// Returns the fields for HTTP/2. Sensitive ones stay out of the table that all requests of a connection
    /// share (RFC 7541 §7.1.3), where gRPC's C core keeps an invalid value's error for the next values.
    pub(crate) fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in self.iter() {
            if let (Ok(name), Ok(mut value)) =
                (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
            {
                value.set_sensitive(true);
                map.append(name, value);
            }
        }
        map
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use super::*;

    /// Returns fields as a client sent them.
    pub(crate) fn received<'f>(fields: &[(&'f str, &'f str)]) -> ServiceFields<'f> {
        let fields = fields.iter();
        ServiceFields::from_received(fields.map(|(name, value)| (*name, value.as_bytes())))
    }

    /// Returns the fields that the service gets.
    pub(crate) fn lines_of(fields: &ServiceFields<'_>) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let line = |(name, value)| format!("{}: {}", text(name), text(value));
        fields.iter().map(line).collect()
    }

    fn set(fields: &mut ServiceFields<'_>, name: &'static str, value: &'static str) {
        fields.set(name, HeaderValue::from_static(value));
    }

    #[test]
    fn a_field_that_is_set_replaces_all_of_its_name() {
        let mut fields = received(&[("X-A", "1"), ("x-a", "2"), ("Cookie", "c")]);
        set(&mut fields, "x-A", "3");
        assert_eq!(fields.values("x-a").collect::<Vec<_>>(), [b"3"]);
        set(&mut fields, "X-a", "4");
        assert_eq!(lines_of(&fields), ["Cookie: c", "X-a: 4"]);
    }

    #[test]
    fn removed_fields_are_gone_received_or_set() {
        let mut fields = received(&[("Host", "a"), ("X-A", "1"), ("x-a", "2"), ("Cookie", "c")]);
        set(&mut fields, "X-B", "3");
        set(&mut fields, "X-C", "4");
        fields.remove("x-a");
        fields.remove("x-b");
        fields.remove_where(|name| name.eq_ignore_ascii_case("COOKIE") || name == "X-C");
        assert!(!fields.contains("cookie") && fields.contains("host"));
        assert_eq!(lines_of(&fields), ["Host: a"]);
    }
}
