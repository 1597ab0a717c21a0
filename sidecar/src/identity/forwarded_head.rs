//! The head of a request on its way to the service.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use http::{HeaderValue, Request, Uri, Version, header};
use pingora::{ErrorType, OrErr};

use crate::identity::service_fields::ServiceFields;
use crate::request::header_list::members;
use crate::request::hop_by_hop::HopByHop;
use crate::request::kind::RequestKind;
use crate::request::received::ReceivedHead;

/// Room for the fields that are set.
const SET_ROOM: usize = 512;

/// A received head with the fields that the service gets.
pub(crate) struct ForwardedHead<'r> {
    pub(crate) received: &'r ReceivedHead,
    pub(crate) is_http_2: bool,
    /// The target to send, if it differs from the received one.
    pub(crate) new_target: Option<Vec<u8>>,
    pub(crate) fields: ServiceFields<'r>,
}

impl<'r> ForwardedHead<'r> {
    /// Leaves out what was for this hop.
    pub(crate) fn new(received: &'r ReceivedHead, is_http_2: bool) -> Self {
        let nominated = members(&received.headers, &header::CONNECTION);
        let hop_by_hop = HopByHop::of_request(nominated);
        let left = received.fields();
        let mut fields = ServiceFields::of(left.filter(|(name, _)| !hop_by_hop.contains(name)));
        if let Some(authority) = received.authority() {
            fields.lead_with("Host", authority);
        }
        if is_http_2 && received.version == Version::HTTP_2 {
            // `trailers`, the only value that HTTP/2 has.
            if let Some(te) = received.headers.get(header::TE) {
                fields.set("te", te.clone());
            }
        }
        Self {
            received,
            is_http_2,
            new_target: None,
            fields,
        }
    }

    /// Returns the head of a stream.
    ///
    /// # Errors
    /// [`ErrorType::InvalidHTTPHeader`] for a target that is no UTF-8.
    pub(crate) fn into_stream_head(mut self, scheme: &str) -> pingora::Result<Request<()>> {
        let host = self.fields.values("host").next().unwrap_or_default();
        let uri = Uri::builder().scheme(scheme).authority(host);
        let uri = uri.path_and_query(&*escaped(self.target())).build();
        let uri = uri
            .or_err(ErrorType::InvalidHTTPHeader, "forwarded head")
            .map_err(|error| error.into_down())?;
        let mut request = Request::new(());
        *request.method_mut() = self.received.method.clone();
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        self.fields.remove("host");
        *request.headers_mut() = self.fields.to_map();
        Ok(request)
    }

    /// Returns the target that the service gets.
    pub(crate) fn target(&self) -> &[u8] {
        let target = self.new_target.as_deref();
        target.unwrap_or_else(|| self.received.target())
    }

    /// Writes the head in HTTP/1.1.
    pub(crate) fn to_bytes(&self) -> BytesMut {
        let mut out = BytesMut::with_capacity(self.received.raw.len() + SET_ROOM);
        out.put_slice(self.received.method.as_str().as_bytes());
        out.put_u8(b' ');
        out.put_slice(self.target());
        out.put_slice(b" HTTP/1.1\r\n");
        for (name, value) in self.fields.iter() {
            for part in [name, b": ", value, b"\r\n"] {
                out.put_slice(part);
            }
        }
        out.put_slice(b"\r\n");
        out
    }

    /// Sets the fields of HTTP/1.1 that frame the body, request a WebSocket, or close the connection
    /// where it `is_last`; those that were received were for this hop.
    pub(crate) fn frame(&mut self, kind: RequestKind, is_last: bool) {
        let mut set = |name: &'static str, value| {
            self.fields.set(name, HeaderValue::from_static(value));
        };
        if kind == RequestKind::WebSocket {
            set("Connection", "Upgrade");
            set("Upgrade", "websocket");
        }
        if self.received.body.is_chunked() {
            // In lower case and alone: every service reads this spelling alike.
            set("Transfer-Encoding", "chunked");
        }
        if is_last {
            set("Connection", "close");
        }
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
    pub(crate) fn sent(fields: &ServiceFields<'_>) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let fields = fields.iter().filter(|(name, _)| *name != b"Host");
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
        let mut head = ForwardedHead::new(&received, false);
        change(&mut head);
        String::from_utf8(head.to_bytes().to_vec()).unwrap()
    }

    fn set(head: &mut ForwardedHead<'_>, name: &'static str, value: &'static str) {
        head.fields.set(name, HeaderValue::from_static(value));
    }

    #[test]
    fn a_field_that_is_set_replaces_all_of_its_name() {
        let text = written(|head| {
            set(head, "x-A", "3");
            assert_eq!(head.fields.values("x-a").collect::<Vec<_>>(), [b"3"]);
            set(head, "X-a", "4");
            head.new_target = Some(b"/c".to_vec());
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
            let fields = &mut head.fields;
            fields.remove("x-a");
            fields.remove("x-b");
            fields.remove_where(|name| name.eq_ignore_ascii_case("COOKIE") || name == "X-C");
            assert!(!fields.contains("cookie") && fields.contains("host"));
        });
        assert_eq!(text, "GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n");
    }
}
