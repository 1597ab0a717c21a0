//! Names that are allowed for the headers about the user, and for those that hold a token.

use bytes::Bytes;
use http::header::HeaderName;
use wire::http::methods::METHOD_OVERRIDES;
use wire::http::request_path::names_another_path;

use crate::identity::forwarded;

/// Name of a header that carries the user or a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldName {
    pub(super) name: HeaderName,
    /// The spelling of the configuration, which the service gets.
    pub(super) written: Bytes,
}

/// Error of a header name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldNameError {
    #[error("is not a header name of letters, digits and hyphens")]
    Malformed,
    #[error("has a meaning of its own")]
    Reserved,
}

impl std::str::FromStr for FieldName {
    type Err = FieldNameError;

    fn from_str(text: &str) -> Result<Self, FieldNameError> {
        Ok(Self {
            name: plain_name(text)?,
            written: Bytes::copy_from_slice(text.as_bytes()),
        })
    }
}

/// Parses a name that has no meaning of its own, and differs from every other such name in CGI too.
///
/// # Errors
/// [`FieldNameError`]
pub(crate) fn plain_name(text: &str) -> Result<HeaderName, FieldNameError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !text.bytes().all(plain) {
        return Err(FieldNameError::Malformed);
    }
    let name: HeaderName = text.parse().map_err(|_| FieldNameError::Malformed)?;
    if is_reserved(name.as_str()) {
        return Err(FieldNameError::Reserved);
    }
    Ok(name)
}

/// Names with a meaning in HTTP, in browsers, in frameworks or in the sidecar: overwriting one
/// would break the request or misuse the user as something else.
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
/// Prefixes of reserved names.
const RESERVED_PREFIXES: [&str; 21] = [
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
    // Frameworks and servers read the method, the target or the body from these.
    "x-accel-",
    "x-b3-",
    "x-content-",
    "x-original-host",
    "x-original-method",
    "x-original-ur",
    "x-request-id",
    "x-rewrite-",
    "x-sendfile",
    "x-xss-",
];
/// Names that [`forwarded::is_client_address_header`] matches but that other proxies use for the
/// user or the token.
const FORWARDED_USER: [&str; 5] = [
    "x-forwarded-access-token",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-preferred-username",
    "x-forwarded-user",
];

fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
        || RESERVED_PREFIXES
            .iter()
            .any(|family| name.starts_with(family))
        || METHOD_OVERRIDES.contains(&name)
        || names_another_path(name)
        || (forwarded::is_client_address_header(name) && !FORWARDED_USER.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_and_reserved_names_are_rejected() {
        for (name, error) in [
            ("", FieldNameError::Malformed),
            ("X User", FieldNameError::Malformed),
            ("X_User", FieldNameError::Malformed),
            ("X-User\r\n", FieldNameError::Malformed),
            ("Host", FieldNameError::Reserved),
            ("authorization", FieldNameError::Reserved),
        ] {
            assert_eq!(name.parse::<FieldName>(), Err(error), "{name:?}");
        }
    }

    const RESERVED: &str = "
            Accept Origin Sec-Fetch-Site Sec-WebSocket-Protocol
            Access-Control-Request-Method X-Request-Id TraceParent Keep-Alive
            Proxy-Connection Forwarded X-Forwarded-For X-Real-IP True-Client-IP
            Verified-Ticket Set-Cookie Range If-None-Match User-Agent Referer From
            Content-Disposition Accept-Language Cache-Control X-Original-URL X-Rewrite-URL
            X-HTTP-Method-Override X-HTTP-Method X-Method-Override X-Rest-Method
            X-Envoy-Original-Path X-Ms-Original-Url X-App-Secret X-Remote-Addr";
    const FREE: &str = "
            X-User X-Auth-Request-User X-Forwarded-User X-Forwarded-Preferred-Username
            X-Forwarded-Email X-Forwarded-Groups X-App-User X-Original-User X-Auth-User
            X-WEBAUTH-USER X-Webauth-User Remote-User Current-User User Security";

    #[test]
    fn names_that_the_sidecar_reads_or_sets_are_rejected() {
        for name in RESERVED.split_whitespace() {
            let parsed = name.parse::<FieldName>();
            assert_eq!(parsed, Err(FieldNameError::Reserved), "{name}");
        }
        for name in FREE.split_whitespace() {
            assert!(name.parse::<FieldName>().is_ok(), "{name}");
        }
    }
}
