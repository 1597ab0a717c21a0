//! The only parser of `Authorization`.

use std::fmt;

use http::{HeaderMap, header::AUTHORIZATION};

use crate::rejection::Rejection;

/// The token of one `Authorization: Bearer …` field: not empty, only `token68` bytes
/// (RFC 9110 §11.2), not verified.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bearer<'a>(&'a str);

impl<'a> Bearer<'a> {
    /// The token as it was sent.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// Never prints the token.
impl fmt::Debug for Bearer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer([redacted])")
    }
}

/// Reads the token from the header fields; `None` where there is no `Authorization` field at all.
///
/// A field that is there but bad is never treated as absent.
///
/// # Errors
/// [`Rejection::AuthorizationRepeated`], [`Rejection::AuthorizationTooLarge`] (before anything is
/// split), [`Rejection::AuthorizationScheme`], [`Rejection::TokenMalformed`].
pub fn from_headers(
    headers: &HeaderMap,
    max_bytes: usize,
) -> Result<Option<Bearer<'_>>, Rejection> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let Some(field) = fields.next() else {
        return Ok(None);
    };
    if fields.next().is_some() {
        return Err(Rejection::AuthorizationRepeated);
    }
    if field.len() > max_bytes {
        return Err(Rejection::AuthorizationTooLarge);
    }
    parse(field.as_bytes()).map(Some)
}

fn parse(field: &[u8]) -> Result<Bearer<'_>, Rejection> {
    let end_of_scheme = field.iter().position(|&b| b == b' ').unwrap_or(field.len());
    let (scheme, rest) = field.split_at(end_of_scheme);
    if !scheme.eq_ignore_ascii_case(b"Bearer") {
        return Err(Rejection::AuthorizationScheme);
    }
    let spaces = rest.iter().take_while(|&&b| b == b' ').count();
    let token = &rest[spaces..];
    if token.is_empty() || !is_all_token68(token) {
        return Err(Rejection::TokenMalformed);
    }
    std::str::from_utf8(token)
        .map(Bearer)
        .map_err(|_| Rejection::TokenMalformed)
}

/// In steps without a way out in between, which the compiler turns into vector instructions: tokens
/// are long and nearly always fine.
fn is_all_token68(bytes: &[u8]) -> bool {
    let all = |step: &[u8]| step.iter().fold(true, |all, &byte| all & is_token68(byte));
    bytes.chunks(64).all(all)
}

const fn is_token68(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use http::HeaderValue;

    use super::*;

    fn headers(values: &[&[u8]]) -> HeaderMap {
        values
            .iter()
            .map(|value| (AUTHORIZATION, HeaderValue::from_bytes(value).unwrap()))
            .collect()
    }

    fn read(values: &[&[u8]]) -> Result<Option<String>, Rejection> {
        from_headers(&headers(values), 64).map(|bearer| bearer.map(|b| b.as_str().to_owned()))
    }

    #[test]
    fn contract_5_1_the_scheme_is_bearer_in_any_case_and_one_or_more_spaces_follow() {
        for value in ["Bearer a.b.c", "bearer a.b.c", "BEARER   a.b.c"] {
            assert_eq!(
                read(&[value.as_bytes()]),
                Ok(Some("a.b.c".into())),
                "{value}"
            );
        }
        assert_eq!(read(&[]), Ok(None));
    }

    #[test]
    fn what_is_there_but_bad_is_never_absent() {
        use Rejection as R;
        let rows: &[(&[u8], Rejection)] = &[
            (b"", R::AuthorizationScheme),
            (b"a.b.c", R::AuthorizationScheme),
            (b"Basic YTpi", R::AuthorizationScheme),
            (b"Bearera.b.c", R::AuthorizationScheme),
            (b"Bearer\ta.b.c", R::AuthorizationScheme),
            (b"Bearer", R::TokenMalformed),
            (b"Bearer ", R::TokenMalformed),
            (b"Bearer a.b.c,", R::TokenMalformed),
            (b"Bearer a.b.c, Bearer d.e.f", R::TokenMalformed),
            (b"Bearer a.b.c d", R::TokenMalformed),
            (b"Bearer \ta.b.c", R::TokenMalformed),
            (b"Bearer a.b.\xff", R::TokenMalformed),
            (b"Bearer \"a.b.c\"", R::TokenMalformed),
        ];
        for (value, expected) in rows {
            assert_eq!(read(&[value]), Err(*expected), "{}", value.escape_ascii());
        }
    }

    #[test]
    fn two_fields_are_a_bad_request_even_when_equal() {
        assert_eq!(
            read(&[b"Bearer a.b.c", b"Bearer a.b.c"]),
            Err(Rejection::AuthorizationRepeated)
        );
    }

    #[test]
    fn the_limit_counts_the_whole_field() {
        let fits = format!("Bearer {}", "a".repeat(57));
        assert!(read(&[fits.as_bytes()]).is_ok());
        let too_large = format!("Bearer {}", "a".repeat(58));
        assert_eq!(
            read(&[too_large.as_bytes()]),
            Err(Rejection::AuthorizationTooLarge)
        );
    }
}
