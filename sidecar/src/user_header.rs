//! The header by which the service learns who the user is.
//!
//! [`UserHeader::apply`] is the only code that touches it: it strips every look-alike, then sets
//! the header or leaves it absent. There is no third path.

use std::io;

use bytes::Bytes;
use contract::cgi_name::cgi_equal;
use contract::rejection::Rejection;
use contract::user_details::CurrentUserDetails;
use http::HeaderValue;
use http::header::HeaderName;
use pingora::http::RequestHeader;
use serde::Serialize;

use crate::fields::remove_where;
use crate::forwarded;

/// The configured name of the header and the room its value may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserHeader {
    name: HeaderName,
    /// The name as it was written in the configuration: this is how the service sees it.
    written: Bytes,
    max_value_bytes: usize,
}

/// Why a name cannot be the user header's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UserHeaderNameError {
    #[error("is not a header name of letters, digits and hyphens")]
    Malformed,
    #[error("has a meaning of its own")]
    Reserved,
}

/// Never a client's to send, whatever the header is called here: a service that was not told of another
/// name believes what stands under this one.
const DEFAULT_NAME: &str = "x-current-user";

/// Names that mean something to HTTP, to browsers and to frameworks, or that the sidecar reads or sets
/// itself: overwriting one would break the request, or have the user taken for something else.
const RESERVED: [&str; 62] = [
    "age",
    "allow",
    "alt-svc",
    "alt-used",
    "authentication-info",
    "authorization",
    "baggage",
    "cache-control",
    "cdn-loop",
    "clear-site-data",
    "connection",
    "cookie",
    "cookie2",
    "date",
    "depth",
    "destination",
    "dnt",
    "early-data",
    "etag",
    "expect",
    "expires",
    "forwarded",
    "from",
    "host",
    "http2-settings",
    "idempotency-key",
    "keep-alive",
    "last-event-id",
    "last-modified",
    "link",
    "location",
    "lock-token",
    "max-forwards",
    "nel",
    "origin",
    "overwrite",
    "pragma",
    "prefer",
    "priority",
    "range",
    "referer",
    "referrer-policy",
    "refresh",
    "report-to",
    "retry-after",
    "save-data",
    "server",
    "te",
    "timeout",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "verified-ticket",
    "via",
    "warning",
    "x-app-id",
    "x-app-secret",
    "x-requested-with",
];
/// Whole families of them.
const RESERVED_PREFIXES: [&str; 23] = [
    "accept",
    "access-control-",
    "content-",
    "if-",
    "proxy-",
    "sec-",
    "set-cookie",
    "strict-transport-",
    "surrogate-",
    "upgrade-",
    "www-authenticate",
    // What frameworks and servers take for the method, the target or the body.
    "x-accel-",
    "x-b3-",
    "x-content-",
    "x-http-method",
    "x-method-override",
    "x-original-host",
    "x-original-method",
    "x-original-ur",
    "x-request-id",
    "x-rewrite-",
    "x-sendfile",
    "x-xss-",
];
/// About the client by name ([`forwarded::is_about_the_client`]), and yet the user: services behind other
/// proxies expect it there.
const FORWARDED_USER: [&str; 2] = ["x-forwarded-user", "x-forwarded-preferred-username"];

fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
        || RESERVED_PREFIXES
            .iter()
            .any(|family| name.starts_with(family))
        || (forwarded::is_about_the_client(name) && !FORWARDED_USER.contains(&name))
}

impl UserHeader {
    pub(crate) fn new(name: &str, max_value_bytes: usize) -> Result<Self, UserHeaderNameError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !name.bytes().all(plain) {
            return Err(UserHeaderNameError::Malformed);
        }
        let parsed: HeaderName = name.parse().map_err(|_| UserHeaderNameError::Malformed)?;
        if is_reserved(parsed.as_str()) {
            return Err(UserHeaderNameError::Reserved);
        }
        Ok(Self {
            name: parsed,
            written: Bytes::copy_from_slice(name.as_bytes()),
            max_value_bytes,
        })
    }

    /// The header's value for `user`: JSON of the fields that have a value, in ASCII only, so that
    /// any language reads it, whatever the name of the user is.
    ///
    /// # Errors
    /// [`Rejection::IdentityTooLarge`] past the budget: services answer an oversize header block
    /// with errors of their own that nobody understands.
    pub(crate) fn value(&self, user: &CurrentUserDetails) -> Result<HeaderValue, Rejection> {
        let json = ascii_json(user).map_err(|_| Rejection::Internal)?;
        if json.len() > self.max_value_bytes {
            return Err(Rejection::IdentityTooLarge);
        }
        // Without the room that the text did not need: the value may be kept for long.
        HeaderValue::from_maybe_shared(Bytes::from(json.into_boxed_slice()))
            .map_err(|_| Rejection::Internal)
    }

    /// The user whom a value of [`UserHeader::value`] stands for.
    ///
    /// # Errors
    /// [`Rejection::Internal`] for what is no such value.
    pub(crate) fn user(&self, value: &HeaderValue) -> Result<CurrentUserDetails, Rejection> {
        serde_json::from_slice(value.as_bytes()).map_err(|_| Rejection::Internal)
    }

    /// Strips whatever a client sent under this name, or one that CGI, WSGI or PHP would take for
    /// it; then sets the user, if there is one.
    ///
    /// Call it last before the request goes upstream: a header set earlier is removed by a client
    /// that names it in `Connection`.
    pub(crate) fn apply(
        &self,
        request: &mut RequestHeader,
        user: Option<&HeaderValue>,
    ) -> pingora::Result<()> {
        remove_where(request, |name| self.is_like(name));
        match user {
            Some(value) => request.insert_header(self.written.clone(), value),
            None => Ok(()),
        }
    }

    fn is_like(&self, name: &str) -> bool {
        let is = |other| cgi_equal(name, other);
        is(self.name.as_str()) || is(DEFAULT_NAME)
    }
}

fn ascii_json(user: &CurrentUserDetails) -> serde_json::Result<Vec<u8>> {
    let mut json = Vec::with_capacity(256);
    let mut serializer = serde_json::Serializer::with_formatter(&mut json, AsciiFormatter);
    WithoutNulls(user).serialize(&mut serializer)?;
    Ok(json)
}

struct WithoutNulls<'a>(&'a CurrentUserDetails);

impl Serialize for WithoutNulls<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.present())
    }
}

/// Escapes what `serde_json` leaves as it is: everything beyond ASCII, and DEL, which no header
/// value may hold.
struct AsciiFormatter;

impl serde_json::ser::Formatter for AsciiFormatter {
    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(|c: char| !matches!(c, ' '..='~')) {
            let (plain, tail) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut characters = tail.chars();
            for unit in characters.next().into_iter().flat_map(utf16_units) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// JSON escapes are UTF-16: beyond the basic plane, two of them (RFC 8259 §7).
fn utf16_units(character: char) -> impl Iterator<Item = u16> {
    let mut units = [0; 2];
    let count = character.encode_utf16(&mut units).len();
    units.into_iter().take(count)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use proptest::prelude::*;

    use super::*;

    fn header() -> UserHeader {
        UserHeader::new("X-Current-User", 1000).unwrap()
    }

    fn user(nick_name: &str) -> CurrentUserDetails {
        CurrentUserDetails {
            id: Some("1".into()),
            nick_name: Some(nick_name.into()),
            ..CurrentUserDetails::default()
        }
    }

    fn request(fields: &[(&'static str, &str)]) -> RequestHeader {
        let mut request = RequestHeader::build("GET", b"/", None).unwrap();
        for (name, value) in fields {
            request.append_header(*name, *value).unwrap();
        }
        request
    }

    #[test]
    fn the_value_is_json_without_nulls_in_ascii_whatever_the_name_is() {
        for (nick_name, json) in [
            ("Ada", r#"{"id":"1","nickName":"Ada"}"#),
            (
                "\u{7ba1}\u{7406}",
                r#"{"id":"1","nickName":"\u7ba1\u7406"}"#,
            ),
            ("\u{1f600}!", r#"{"id":"1","nickName":"\ud83d\ude00!"}"#),
            (
                "a\u{7f}\u{80}b",
                r#"{"id":"1","nickName":"a\u007f\u0080b"}"#,
            ),
            ("\r\n\0\"\\", r#"{"id":"1","nickName":"\r\n\u0000\"\\"}"#),
        ] {
            let value = header().value(&user(nick_name)).unwrap();
            assert_eq!(value.to_str().unwrap(), json);
            assert_eq!(header().user(&value).unwrap(), user(nick_name));
            let parsed: serde_json::Value = serde_json::from_slice(value.as_bytes()).unwrap();
            assert_eq!(parsed["nickName"], nick_name);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_a_user_s_fields_are_the_value_is_visible_ascii_and_reads_back(
            fields in prop::collection::btree_map(
                prop::sample::select(CurrentUserDetails::FIELDS),
                prop_oneof![".{0,30}", "[\\x00-\\x1f\\x7f-\\u{a0}\\u{d7ff}\\u{e000}\\u{10ffff}\"\\\\]{0,30}"],
                0..8,
            ),
            limit in 2..2000_usize,
        ) {
            let user: CurrentUserDetails =
                serde_json::from_value(serde_json::to_value(&fields).unwrap()).unwrap();
            let unlimited = UserHeader::new("X-Current-User", usize::MAX).unwrap();
            let value = unlimited.value(&user).unwrap();
            prop_assert!(value.as_bytes().iter().all(|byte| matches!(byte, b' '..=b'~')));
            prop_assert_eq!(unlimited.user(&value).unwrap(), user.clone());
            let limited = UserHeader::new("X-Current-User", limit).unwrap().value(&user);
            if value.len() <= limit {
                prop_assert_eq!(limited, Ok(value));
            } else {
                prop_assert_eq!(limited, Err(Rejection::IdentityTooLarge));
            }
        }
    }

    #[test]
    fn a_value_past_the_budget_is_refused_and_not_cut() {
        let json = r#"{"id":"1","nickName":"Ada"}"#;
        for (budget, expected) in [
            (json.len(), Ok(HeaderValue::from_static(json))),
            (json.len() - 1, Err(Rejection::IdentityTooLarge)),
        ] {
            let header = UserHeader::new("X-Current-User", budget).unwrap();
            assert_eq!(header.value(&user("Ada")), expected);
        }
    }

    const LOOK_ALIKES: [&str; 6] = [
        "X-Current-User",
        "x-current-user",
        "X_Current_User",
        "X.Current.User",
        "x~current!user",
        "X-CURRENT_USER",
    ];

    #[test]
    fn every_look_alike_is_stripped_where_no_user_is_known() {
        let fields = LOOK_ALIKES.map(|name| (name, "forged"));
        let mut request = request(&fields);
        request.append_header("X-Current-User", "twice").unwrap();
        request.append_header("X-Current-Users", "kept").unwrap();
        header().apply(&mut request, None).unwrap();
        let left: Vec<_> = request.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-current-users"]);
    }

    #[test]
    fn a_known_user_is_the_only_value_and_written_as_configured() {
        let mut request = request(&LOOK_ALIKES.map(|name| (name, "forged")));
        let value = header().value(&user("Ada")).unwrap();
        header().apply(&mut request, Some(&value)).unwrap();
        let mut wire = Vec::new();
        request.header_to_h1_wire(&mut wire);
        assert_eq!(
            String::from_utf8(wire).unwrap(),
            "X-Current-User: {\"id\":\"1\",\"nickName\":\"Ada\"}\r\n"
        );
    }

    #[test]
    fn a_name_that_steers_the_message_is_refused() {
        for (name, error) in [
            ("", UserHeaderNameError::Malformed),
            ("X User", UserHeaderNameError::Malformed),
            ("X_User", UserHeaderNameError::Malformed),
            ("X-User\r\n", UserHeaderNameError::Malformed),
            ("Host", UserHeaderNameError::Reserved),
            ("authorization", UserHeaderNameError::Reserved),
        ] {
            assert_eq!(UserHeader::new(name, 1).unwrap_err(), error, "{name:?}");
        }
    }

    #[test]
    fn a_name_that_the_sidecar_itself_reads_or_sets_is_refused() {
        for name in [
            "Accept",
            "Origin",
            "Sec-Fetch-Site",
            "Sec-WebSocket-Protocol",
            "Access-Control-Request-Method",
            "X-Request-Id",
            "TraceParent",
            "Keep-Alive",
            "Proxy-Connection",
            "Forwarded",
            "X-Forwarded-For",
            "X-Real-IP",
            "True-Client-IP",
            "Verified-Ticket",
            "Set-Cookie",
            "Range",
            "If-None-Match",
            "User-Agent",
            "Referer",
            "From",
            "Content-Disposition",
            "Accept-Language",
            "Cache-Control",
            "X-Original-URL",
            "X-Rewrite-URL",
            "X-HTTP-Method-Override",
            "X-HTTP-Method",
            "X-Method-Override",
            "X-App-Secret",
            "X-Remote-Addr",
        ] {
            let refused = UserHeader::new(name, 1);
            assert_eq!(refused, Err(UserHeaderNameError::Reserved), "{name}");
        }
        for name in [
            "X-User",
            "X-Auth-Request-User",
            "X-Forwarded-User",
            "X-Forwarded-Preferred-Username",
            "X-App-User",
            "X-Original-User",
            "X-Auth-User",
            "X-WEBAUTH-USER",
            "X-Webauth-User",
            "Remote-User",
            "Current-User",
            "User",
            "Security",
        ] {
            assert!(UserHeader::new(name, 1).is_ok(), "{name}");
        }
    }
}
