//! The head of a request on its way to the service.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Request, Uri, Version, header};
use pingora::{ErrorType, OrErr};
use smallvec::SmallVec;

use crate::identity::service_head::ServiceHead;
use crate::request::kind::RequestKind;
use crate::request::received::ReceivedHead;

/// Room for the fields that are set.
const SET_ROOM: usize = 512;

/// Fields for the next hop that `Connection` need not name (RFC 9110 §7.6.1).
const NEXT_HOP: [&str; 9] = [
    "connection",
    "upgrade",
    "te",
    "trailer",
    "proxy-authenticate",
    "proxy-authorization",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
];

/// A received head, without the fields that were removed, and with those that were set.
pub(crate) struct ForwardedHead<'r> {
    pub(crate) received: &'r ReceivedHead,
    is_http_2: bool,
    target: Option<Vec<u8>>,
    left: SmallVec<[(&'r str, &'r [u8]); 16]>,
    set: SmallVec<[(Bytes, HeaderValue); 6]>,
}

impl<'r> ForwardedHead<'r> {
    pub(crate) fn new(received: &'r ReceivedHead) -> Self {
        let nominated: SmallVec<[&[u8]; 4]> = received.connection_options().collect();
        let is_for_next_hop = |name: &str| {
            let is = |other: &[u8]| name.as_bytes().eq_ignore_ascii_case(other);
            NEXT_HOP.iter().any(|hop| is(hop.as_bytes())) || nominated.iter().any(|one| is(one))
        };
        let fields = received.fields();
        let mut head = Self {
            received,
            is_http_2: false,
            target: None,
            left: fields.filter(|(name, _)| !is_for_next_hop(name)).collect(),
            set: SmallVec::new(),
        };
        if let Some(authority) = received.authority() {
            head.remove(&header::HOST);
            head.left.insert(0, ("Host", authority));
        }
        head
    }

    /// Creates the head for a stream of HTTP/2, which frames the body by itself.
    pub(crate) fn to_http_2(received: &'r ReceivedHead) -> Self {
        let mut head = Self {
            is_http_2: true,
            ..Self::new(received)
        };
        head.remove(&header::TRANSFER_ENCODING);
        if received.version == Version::HTTP_2 {
            // `trailers`, the only value that HTTP/2 has.
            let te = received.headers.get(header::TE).cloned();
            let te = te.map(|te| (Bytes::from_static(b"te"), te));
            head.set.extend(te);
        }
        head
    }

    /// Returns the head of a stream.
    ///
    /// # Errors
    /// [`ErrorType::InvalidHTTPHeader`] for a target that is no UTF-8.
    pub(crate) fn into_stream_head(self, scheme: &str) -> pingora::Result<Request<()>> {
        let host = self.values(&header::HOST).next().unwrap_or_default();
        let uri = Uri::builder().scheme(scheme).authority(host);
        let uri = uri.path_and_query(&*escaped(self.target())).build();
        let request = Request::builder().method(self.received.method.clone());
        let mut request = request.version(Version::HTTP_2);
        let fields = self.fields();
        for (name, value) in fields.filter(|(name, _)| !name.eq_ignore_ascii_case(b"host")) {
            request = request.header(name, value);
        }
        let request = uri.and_then(|uri| request.uri(uri).body(()));
        request
            .or_err(ErrorType::InvalidHTTPHeader, "forwarded head")
            .map_err(|error| error.into_down())
    }

    /// Returns the target that the service gets.
    pub(crate) fn target(&self) -> &[u8] {
        let target = self.target.as_deref();
        target.unwrap_or_else(|| self.received.target())
    }

    /// Writes the head in HTTP/1.1.
    pub(crate) fn to_bytes(&self) -> BytesMut {
        let mut out = BytesMut::with_capacity(self.received.raw.len() + SET_ROOM);
        out.put_slice(self.received.method.as_str().as_bytes());
        out.put_u8(b' ');
        out.put_slice(self.target());
        out.put_slice(b" HTTP/1.1\r\n");
        for (name, value) in self.fields() {
            for part in [name, b": ", value, b"\r\n"] {
                out.put_slice(part);
            }
        }
        out.put_slice(b"\r\n");
        out
    }

    /// Sets the fields of HTTP/1.1 that frame the body, request a WebSocket, or close the connection
    /// where it `is_last`; those that were received were for this hop.
    pub(crate) fn frame(&mut self, kind: RequestKind, is_last: bool) -> pingora::Result<()> {
        // In lower case and alone: every service reads this spelling alike.
        let coding = self
            .received
            .body
            .is_chunked()
            .then_some(("Transfer-Encoding", "chunked"));
        let handshake = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
        let handshake = handshake
            .into_iter()
            .filter(|_| kind == RequestKind::WebSocket);
        let close = is_last.then_some(("Connection", "close"));
        for (name, value) in handshake.chain(coding).chain(close) {
            let name = Bytes::from_static(name.as_bytes());
            self.set(name, HeaderValue::from_static(value))?;
        }
        Ok(())
    }

    /// Returns names and values, in order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let left = self
            .left
            .iter()
            .map(|(name, value)| (name.as_bytes(), *value));
        let set = self
            .set
            .iter()
            .map(|(name, value)| (&**name, value.as_bytes()));
        left.chain(set)
    }
}

/// Escapes the bytes that no URI of the library holds, as browsers do.
fn escaped(target: &[u8]) -> Cow<'_, [u8]> {
    let is_escaped = |byte: &u8| b"\"<>`".contains(byte);
    if !target.iter().any(is_escaped) {
        return Cow::Borrowed(target);
    }
    let escape = |byte: &u8| match is_escaped(byte) {
        true => format!("%{byte:02X}").into_bytes(),
        false => vec![*byte],
    };
    Cow::Owned(target.iter().flat_map(escape).collect())
}

impl ServiceHead for ForwardedHead<'_> {
    fn is_http_2(&self) -> bool {
        self.is_http_2
    }

    fn set_target(&mut self, target: Vec<u8>) {
        self.target = Some(target);
    }

    fn values<'h>(&'h self, name: &'h HeaderName) -> impl Iterator<Item = &'h [u8]> {
        let name = name.as_str().as_bytes();
        let values =
            move |(other, value): (&[u8], _)| name.eq_ignore_ascii_case(other).then_some(value);
        self.fields().filter_map(values)
    }

    fn set(&mut self, written: Bytes, value: HeaderValue) -> pingora::Result<()> {
        let is_other = |name: &[u8]| !name.eq_ignore_ascii_case(&written);
        self.left.retain(|(name, _)| is_other(name.as_bytes()));
        self.set.retain(|(name, _)| is_other(name));
        self.set.push((written, value));
        Ok(())
    }

    fn remove(&mut self, name: &HeaderName) {
        self.remove_where(|other| other.eq_ignore_ascii_case(name.as_str()));
    }

    fn remove_where(&mut self, matches: impl Fn(&str) -> bool) {
        self.left.retain(|(name, _)| !matches(name));
        // A name that is not text cannot be compared, and does not stay.
        self.set
            .retain(|(name, _)| str::from_utf8(name).is_ok_and(|name| !matches(name)));
    }
}

/// Heads for the tests of the rules about them.
#[cfg(test)]
pub(crate) mod testing {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::request::received;

    /// Returns a head with these fields behind `Host`.
    pub(crate) fn received(fields: &[(&str, &str)]) -> ReceivedHead {
        let fields = fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"));
        let fields: String = fields.collect();
        let text = format!("GET / HTTP/1.1\r\nHost: a:1\r\n{fields}\r\n");
        received::take(&mut BytesMut::from(text.as_bytes()))
            .unwrap()
            .unwrap()
    }

    /// Returns the fields that the service gets beside `Host`.
    pub(crate) fn sent(head: &ForwardedHead<'_>) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let fields = head.fields().filter(|(name, _)| *name != b"Host");
        fields
            .map(|(name, value)| format!("{}: {}", text(name), text(value)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::request::received;

    fn written(change: impl FnOnce(&mut ForwardedHead<'_>)) -> String {
        let text = "GET /a?b HTTP/1.1\r\nHost: a\r\nX-A:  1 \r\nx-a: 2\r\nCookie: c\r\n\r\n";
        let mut received = BytesMut::from(text);
        let received = received::take(&mut received).unwrap().unwrap();
        let mut head = ForwardedHead::new(&received);
        change(&mut head);
        String::from_utf8(head.to_bytes().to_vec()).unwrap()
    }

    const X_A: HeaderName = HeaderName::from_static("x-a");

    fn set(head: &mut ForwardedHead<'_>, name: &'static str, value: &'static str) {
        let name = Bytes::from_static(name.as_bytes());
        head.set(name, HeaderValue::from_static(value)).unwrap();
    }

    #[test]
    fn fields_go_on_in_their_order_and_spelling() {
        assert_eq!(
            written(|_| {}),
            "GET /a?b HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-a: 2\r\nCookie: c\r\n\r\n"
        );
    }

    #[test]
    fn fields_for_the_next_hop_stay_here() {
        let fields = "Connection: Upgrade, X-Hop\r\nX-hop: 1\r\nUpgrade: h2c\r\nTE: trailers\r\n\
                      HTTP2-Settings: AAA\r\nProxy-Authorization: Basic a\r\n";
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut received = BytesMut::from(text.as_bytes());
        let received = received::take(&mut received).unwrap().unwrap();
        assert_eq!(
            ForwardedHead::new(&received).to_bytes(),
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
        );
    }

    #[test]
    fn a_field_that_is_set_replaces_all_of_its_name() {
        let text = written(|head| {
            set(head, "x-A", "3");
            assert_eq!(head.values(&X_A).collect::<Vec<_>>(), [b"3"]);
            set(head, "X-a", "4");
            head.set_target(b"/c".to_vec());
        });
        assert_eq!(
            text,
            "GET /c HTTP/1.1\r\nHost: a\r\nCookie: c\r\nX-a: 4\r\n\r\n"
        );
    }

    #[test]
    fn removed_fields_are_gone_received_or_set() {
        let text = written(|head| {
            set(head, "X-B", "3");
            set(head, "X-C", "4");
            head.remove(&X_A);
            head.remove(&HeaderName::from_static("x-b"));
            head.remove_where(|name| name.eq_ignore_ascii_case("COOKIE") || name == "X-C");
            assert!(!head.contains(&header::COOKIE) && head.contains(&header::HOST));
        });
        assert_eq!(text, "GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n");
    }
}
