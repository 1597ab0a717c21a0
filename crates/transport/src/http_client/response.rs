//! One response, as its requester reads it.

use std::fmt;

use http::{HeaderMap, StatusCode, header};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use zeroize::Zeroizing;

/// The whole response.
pub struct HttpResponse {
    /// As received.
    pub status: StatusCode,
    /// As received.
    pub headers: HeaderMap,
    /// Zeroized, because in hmac mode the key is the secret.
    pub body: Zeroizing<Vec<u8>>,
}

/// The status of a response without keys, for the log.
#[derive(Debug, Clone, Copy)]
pub struct Unexpected(
    /// Of the response.
    pub StatusCode,
);

impl Unexpected {
    /// Returns true where the server may respond otherwise later without a change of the
    /// configuration.
    pub fn is_for_now(self) -> bool {
        let for_now = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
        self.0.is_server_error() || for_now.contains(&self.0)
    }
}

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        if self.0.is_redirection() && self.0 != StatusCode::NOT_MODIFIED {
            f.write_str("; redirects are not followed")?;
        }
        if self.0 == StatusCode::BAD_REQUEST {
            f.write_str("; a port of TLS, https://, responds so to http://")?;
        }
        Ok(())
    }
}

/// Returns the content codings of a response (RFC 9110 §8.4.1); `None` for `identity` alone.
pub(super) fn encoding(headers: &HeaderMap) -> Option<String> {
    let mut fields = Vec::new();
    for field in headers.get_all(header::CONTENT_ENCODING) {
        fields.push(String::from_utf8_lossy(field.as_bytes()));
    }
    let all = fields.join(", ");
    let is_encoded = all
        .split(',')
        .map(str::trim)
        .any(|it| !it.is_empty() && !it.eq_ignore_ascii_case("identity"));
    is_encoded.then_some(all)
}

/// Returns true for the beginning of JSON, PEM, base64 of DER or a signed list.
pub(super) fn begins_as_text(body: &[u8]) -> bool {
    std::str::from_utf8(body)
        .unwrap_or_default()
        .trim_start_matches(|c: char| c == '\u{feff}' || c.is_whitespace())
        .starts_with(['{', '[', '-', 'M', 'e'])
}

/// Returns seconds since the epoch (RFC 9110 §6.6.1), later by the time in caches (RFC 9111 §5.1).
pub(super) fn date(headers: &HeaderMap) -> Option<i64> {
    let date = headers.get(header::DATE)?.to_str().ok()?;
    let sent = OffsetDateTime::parse(date, &Rfc2822).ok()?;
    Some(sent.unix_timestamp() + i64::from(age(headers).unwrap_or_default()))
}

fn age(headers: &HeaderMap) -> Option<u32> {
    headers.get(header::AGE)?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn the_time_in_caches_is_no_difference_of_clocks() {
        let mut headers = HeaderMap::new();
        assert_eq!(date(&headers), None);
        let epoch = "Thu, 01 Jan 1970 00:00:10 GMT";
        headers.insert(header::DATE, epoch.parse().unwrap());
        for (age, seconds) in [(None, 10), (Some("3600"), 3610), (Some("-1"), 10)] {
            if let Some(age) = age {
                headers.insert(header::AGE, age.parse().unwrap());
            }
            assert_eq!(date(&headers), Some(seconds), "{age:?}");
        }
    }
}
