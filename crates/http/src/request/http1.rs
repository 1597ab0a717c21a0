//! Rejects an HTTP/1 head that no proxy may forward.

use crate::framing::is_tchar;
use crate::invalid::InvalidRequest;
use http::{HeaderMap, header};

use crate::request::header_list::members;

/// Rejects a `Connection` field that names a field on which the framing, the route or the decision
/// depends: a proxy would remove it, and the service would read another request than was authorized.
/// Also rejects an option that is no field name.
pub(super) fn check(headers: &HeaderMap) -> Result<(), InvalidRequest> {
    let named = members(headers, &header::CONNECTION).filter(|name| !name.is_empty());
    let is_bad = named.enumerate().any(|(index, name)| {
        index >= MAX_CONNECTION_OPTIONS || is_never(name) || !name.iter().copied().all(is_tchar)
    });
    if is_bad {
        Err(InvalidRequest::Framing)
    } else {
        Ok(())
    }
}

fn is_never(name: &[u8]) -> bool {
    END_TO_END
        .iter()
        .any(|field| name.eq_ignore_ascii_case(field))
}

const END_TO_END: [&[u8]; 11] = [
    b"content-length",
    b"transfer-encoding",
    b"host",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"access-control-request-headers",
    b"access-control-request-method",
    b"destination",
    b"origin",
    b"sec-fetch-site",
];
/// More than any client names.
const MAX_CONNECTION_OPTIONS: usize = 9;
