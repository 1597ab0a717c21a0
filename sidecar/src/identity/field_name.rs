//! Names that are allowed for the headers about the user, and for those that hold a token.

use bytes::Bytes;
use http::header::HeaderName;
use postern_http::methods::METHOD_OVERRIDES;
use postern_http::path::overrides::names_another_path;

use crate::identity::forwarded;

/// Name of a header that carries the user or a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldName {
    pub(crate) name: HeaderName,
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

/// Parses a name that has no meaning of its own, and differs from every other such name in CGI too.
impl std::str::FromStr for FieldName {
    type Err = FieldNameError;

    fn from_str(text: &str) -> Result<Self, FieldNameError> {
        if !text.bytes().all(may_be_in_field_name) {
            return Err(FieldNameError::Malformed);
        }
        let name: HeaderName = text.parse().map_err(|_| FieldNameError::Malformed)?;
        // A field of HTTP itself or of the contract would change the request to the service.
        if is_reserved(name.as_str()) {
            return Err(FieldNameError::Reserved);
        }
        Ok(Self {
            name,
            written: Bytes::copy_from_slice(text.as_bytes()),
        })
    }
}

/// Returns true for a byte of a field's name that no program converts.
pub(super) fn may_be_in_field_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// Names with a meaning of their own, a line each; `*` ends a prefix.
const RESERVED: &str = include_str!("reserved_fields.txt");
/// Names that [`forwarded::is_client_address_header`] matches but that other proxies use for the
/// user or the token.
const FORWARDED_USER: [&str; 10] = [
    "forwarded-user",
    "wl-proxy-remote-user",
    "x-appengine-user-email",
    "x-appengine-user-id",
    "x-appengine-user-nickname",
    "x-forwarded-access-token",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-preferred-username",
    "x-forwarded-user",
];

/// Returns true for a name with a meaning in HTTP, in browsers, in frameworks or in the sidecar.
pub(super) fn has_a_meaning(name: &str) -> bool {
    RESERVED.lines().any(|line| match line.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == line,
    })
}

fn is_reserved(name: &str) -> bool {
    has_a_meaning(name)
        || METHOD_OVERRIDES.contains(&name)
        || names_another_path(name)
        || (forwarded::is_client_address_header(name) && !FORWARDED_USER.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVED: &str = "
            Accept Origin Sec-Fetch-Site Sec-WebSocket-Protocol
            Access-Control-Request-Method X-Request-Id TraceParent Keep-Alive
            Proxy-Connection Forwarded X-Forwarded-For X-Real-IP True-Client-IP
            Verified-Ticket Set-Cookie Range If-None-Match User-Agent Referer From
            Content-Disposition Accept-Language Cache-Control X-Original-URL X-Rewrite-URL
            X-HTTP-Method-Override X-HTTP-Method X-Method-Override X-Rest-Method
            X-Envoy-Original-Path X-Ms-Original-Url X-App-Secret X-Remote-Addr";
    const FREE: &str = "
            Forwarded-User WL-Proxy-Remote-User X-AppEngine-User-Email
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
