//! The head that the service would get, line by line, without its secrets.

use http::Version;
use http::header::{self, HeaderName};
use pingora::http::RequestHeader;

use crate::auth::authorize::Forward;
use crate::request::header_list::connection_headers;
use crate::request::kind::RequestKind;

/// Removes the fields for the next hop only (RFC 9110 §7.6.1), as Pingora does before our changes;
/// those that open a WebSocket stay.
pub(crate) fn without_hop_by_hop(
    mut request: RequestHeader,
    forward: &Forward,
) -> pingora::Result<RequestHeader> {
    for name in connection_headers(&request.headers) {
        request.remove_header(&name);
    }
    for name in HOP_BY_HOP {
        request.remove_header(&name);
    }
    if forward.kind == RequestKind::WebSocket {
        request.insert_header(header::CONNECTION, "Upgrade")?;
        request.insert_header(header::UPGRADE, "websocket")?;
    }
    Ok(request)
}

const HOP_BY_HOP: [HeaderName; 10] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
];

/// Adds the framing of the body, as Pingora does after our changes; HTTP/2 has frames for it.
pub(crate) fn frame_body(request: &mut RequestHeader, forward: &Forward) -> pingora::Result<()> {
    if request.version == Version::HTTP_2 {
        return Ok(());
    }
    if forward.body && !request.headers.contains_key(header::CONTENT_LENGTH) {
        request.insert_header(header::TRANSFER_ENCODING, "chunked")?;
    }
    Ok(())
}

/// Returns the request line and the fields, or HTTP/2's pseudo-fields and the others, without the
/// token, also without the one in the cookie of this name.
pub(crate) fn lines_of(head: &RequestHeader, token_cookie: Option<&str>) -> Vec<String> {
    let mut wire = Vec::new();
    head.header_to_h1_wire(&mut wire);
    let to_http_2 = head.version == Version::HTTP_2;
    let fields = String::from_utf8_lossy(&wire).into_owned();
    let fields = fields.lines().filter_map(|line| {
        let (name, value) = line.split_once(": ").unwrap_or((line, ""));
        let lower = name.to_ascii_lowercase();
        let name = if to_http_2 { lower.as_str() } else { name };
        Some(match lower.as_str() {
            "host" if to_http_2 => return None,
            "authorization" => format!("{name}: {}", without_token(value)),
            "cookie" => format!("{name}: {}", without_cookie(value, token_cookie)),
            _ => format!("{name}: {value}"),
        })
    });
    beginning_of(head)
        .into_iter()
        .chain(fields)
        .map(|line| without_tokens(&line))
        .collect()
}

fn beginning_of(head: &RequestHeader) -> Vec<String> {
    let (method, target) = (&head.method, String::from_utf8_lossy(head.raw_path()));
    if head.version != Version::HTTP_2 {
        return vec![format!("{method} {target} HTTP/1.1")];
    }
    let host = head.headers.get(header::HOST);
    let host = host.map_or_else(Default::default, |host| {
        String::from_utf8_lossy(host.as_bytes())
    });
    // A service without TLS that speaks HTTP/2.
    vec![
        format!(":method: {method}"),
        ":scheme: http".to_owned(),
        format!(":authority: {host}"),
        format!(":path: {target}"),
    ]
}

/// Hides other text that looks like a JWT, in a query or a field of the service.
pub(crate) fn without_tokens(line: &str) -> String {
    let is_of_one = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let words = line.split_inclusive(|c| !is_of_one(c));
    let redacted = words.map(|word| {
        let token = word.trim_end_matches(|c| !is_of_one(c));
        // Every JSON object in base64url starts like this.
        if token.starts_with("eyJ") && token.matches('.').count() >= 2 {
            word.replacen(token, HIDDEN, 1)
        } else {
            word.to_owned()
        }
    });
    redacted.collect()
}

const HIDDEN: &str = "[as it was sent]";

/// Hides a whole token: its readable part is reported elsewhere, its signature never.
fn without_token(value: &str) -> String {
    match value.split_once(' ') {
        Some((scheme, _)) => format!("{scheme} {HIDDEN}"),
        None => HIDDEN.to_owned(),
    }
}

fn without_cookie(value: &str, hidden: Option<&str>) -> String {
    let pairs = value.split(';').map(str::trim);
    let redacted = pairs.map(|pair| match pair.split_once('=') {
        Some((name, _)) if Some(name.trim_end()) == hidden => format!("{name}={HIDDEN}"),
        _ => pair.to_owned(),
    });
    redacted.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_printed() {
        assert_eq!(
            without_token("Bearer a.b.secret"),
            "Bearer [as it was sent]"
        );
        assert_eq!(without_token("secret"), "[as it was sent]");
        let cookies = "a=1; t=a.b.secret;t=secret";
        assert_eq!(
            without_cookie(cookies, Some("t")),
            "a=1; t=[as it was sent]; t=[as it was sent]"
        );
        assert_eq!(without_cookie("t=1; u", None), "t=1; u");
        assert_eq!(
            without_cookie("t =secret", Some("t")),
            "t =[as it was sent]"
        );
        for (line, expected) in [
            (
                "GET /a?t=eyJh.eyJz.c-_2&x=1 HTTP/1.1",
                "GET /a?t=[as it was sent]&x=1 HTTP/1.1",
            ),
            (
                "Cookie: u=\"eyJh.eyJz.c\"",
                "Cookie: u=\"[as it was sent]\"",
            ),
            ("X: eyJh.eyJz.c", "X: [as it was sent]"),
            ("X: eyJh a.b.c \u{e4} eyJ", "X: eyJh a.b.c \u{e4} eyJ"),
        ] {
            assert_eq!(without_tokens(line), expected);
        }
    }
}
