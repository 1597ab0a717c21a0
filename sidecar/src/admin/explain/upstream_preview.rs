//! The head that the service would get, line by line, without its secrets.

use std::borrow::Cow;

use crate::identity::forwarded_head::ForwardedHead;

/// Returns the request line and the fields, or HTTP/2's pseudo-fields and the others, without the
/// token, also without the one in the cookie of this name.
pub(crate) fn lines_of(head: &ForwardedHead<'_>, token_cookie: Option<&str>) -> Vec<String> {
    let to_http_2 = head.is_http_2;
    let fields = head.fields.iter().filter_map(|(name, value)| {
        let (name, value) = (text(name), text(value));
        let lower = name.to_ascii_lowercase();
        let name = if to_http_2 { &lower } else { &*name };
        Some(match lower.as_str() {
            "host" if to_http_2 => return None,
            "authorization" => format!("{name}: {}", without_token(&value)),
            "cookie" => format!("{name}: {}", without_cookie(&value, token_cookie)),
            _ => format!("{name}: {value}"),
        })
    });
    let lines = beginning_of(head).into_iter().chain(fields);
    lines.map(|line| without_tokens(&line)).collect()
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn beginning_of(head: &ForwardedHead<'_>) -> Vec<String> {
    let (method, target) = (&head.received.method, text(head.target()));
    if !head.is_http_2 {
        return vec![format!("{method} {target} HTTP/1.1")];
    }
    let host = head.fields.values("host").next().unwrap_or_default();
    // A service without TLS that speaks HTTP/2.
    vec![
        format!(":method: {method}"),
        ":scheme: http".to_owned(),
        format!(":authority: {}", text(host)),
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
