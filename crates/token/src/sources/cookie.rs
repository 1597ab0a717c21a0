//! The cookie that carries a token: its only reader, and its removal.

use http::HeaderMap;
use http::header::COOKIE;

use crate::invalid::InvalidToken;
use crate::sources::bearer::{Bearer, TokenLocation, bounded};
use postern_http::framing::is_tchar;
use postern_http::header_alias::cgi_equal;

/// Reads the token from the cookie of this name; `None` without such a cookie. Equal cookies count
/// as one.
///
/// # Errors
/// [`InvalidToken::AuthorizationTooLarge`], [`InvalidToken::Malformed`];
/// [`InvalidToken::AuthorizationRepeated`] for two values, because programs differ in the one that they read.
pub fn token_of<'a>(
    headers: &'a HeaderMap,
    name: &str,
    max_bytes: usize,
) -> Result<Option<Bearer<'a>>, InvalidToken> {
    let mut tokens = pairs(headers).filter_map(|pair| value_of(pair, name));
    let Some(token) = tokens.next() else {
        return Ok(None);
    };
    if tokens.any(|other| other != token) {
        return Err(InvalidToken::AuthorizationRepeated);
    }
    let token = bounded(token, max_bytes)?;
    Ok(Some(token.with_location(TokenLocation::Cookie)))
}

/// Returns the value of the first cookie of this name.
pub(super) fn first_value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h [u8]> {
    pairs(headers).find_map(|pair| value_of(pair, name))
}

/// Returns the name of a cookie that holds a part of a cookie of this name, as in `session.0`: libraries
/// split values that are longer than a browser stores.
pub(super) fn part_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    for pair in pairs(headers) {
        let mut halves = pair.split(|&byte| byte == b'=');
        let known_as = halves.next().unwrap_or_default().trim_ascii();
        if let Some([b'.' | b'-' | b'_', digits @ ..]) = known_as.strip_prefix(name.as_bytes())
            && !digits.is_empty()
            && digits.iter().all(u8::is_ascii_digit)
        {
            return str::from_utf8(known_as).ok();
        }
    }
    None
}

/// Returns all cookies except those of this name and its look-alikes, as one field; `None` if there is no
/// such cookie to remove.
pub fn cookies_without(headers: &HeaderMap, name: &str) -> Option<Vec<u8>> {
    // An empty pair at the end would leave a blank there, which HTTP/2 does not allow.
    let (removed, left): (Vec<_>, Vec<_>) = pairs(headers)
        .filter(|pair| !pair.is_empty())
        .partition(|pair| may_be_read_as(pair, name));
    if removed.is_empty() {
        return None;
    }
    Some(left.join(&b"; "[..]))
}

fn pairs(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers
        .get_all(COOKIE)
        .iter()
        .flat_map(|field| field.as_bytes().split(|&byte| byte == b';'))
        .map(<[u8]>::trim_ascii)
}

/// Returns the value of a cookie of this name (RFC 6265 §4.2.1); most programs trim the name.
fn value_of<'p>(pair: &'p [u8], name: &str) -> Option<&'p [u8]> {
    // Split at the first `=`, because a value may hold more of them.
    let mut halves = pair.splitn(2, |&byte| byte == b'=');
    if halves.next()?.trim_ascii() != name.as_bytes() {
        return None;
    }
    halves.next()
}

/// Returns true if some program reads a cookie of this name: many separate cookies by commas and
/// blanks too, skip odd bytes around a name, or compare names like those of CGI variables.
fn may_be_read_as(pair: &[u8], name: &str) -> bool {
    // The text up to the last `=`: a program that splits elsewhere reads a name before any of them.
    let Some(last) = pair.iter().rposition(|&byte| byte == b'=') else {
        return false;
    };
    let (before, _) = pair.split_at(last);
    let mut is_named = false;
    // Each part is read once only, because a client may send any number of `=`.
    for part in before.split(|&byte| byte == b'=') {
        // A name stands at the end of its part, but for odd bytes.
        let mut words_from_end = part
            .rsplit(|&byte| !is_tchar(byte))
            .skip_while(|word| word.is_empty());
        let Some(found) = words_from_end.next() else {
            continue;
        };
        // With nothing in front of it, it is the value of the name before, as in `a=name=`.
        let is_value = is_named && words_from_end.next().is_none();
        if !is_value && str::from_utf8(found).is_ok_and(|found| cgi_equal(found, name)) {
            return true;
        }
        is_named = true;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use token_corpus::fields::headers;

    fn headers_of(fields: &[&str]) -> HeaderMap {
        let fields: Vec<_> = fields.iter().map(|field| ("cookie", *field)).collect();
        headers(&fields)
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        use InvalidToken as R;
        for (cookies, expected) in [
            (&["token=a.b.c"][..], Ok(Some("a.b.c"))),
            (&["x=1; token=a.b.c ;y"], Ok(Some("a.b.c"))),
            (&["x=1", "token=a.b.c"], Ok(Some("a.b.c"))),
            (&["token =a.b.c"], Ok(Some("a.b.c"))),
            (&["x=1;\ttoken\t=a.b.c"], Ok(Some("a.b.c"))),
            (&["$Version=1; token=a; $Path=/"], Ok(Some("a"))),
            (&["xtoken=a; Token=b; token2=c; =token=d"], Ok(None)),
            (&["token", ""], Ok(None)),
            (&[], Ok(None)),
            (&["token="], Err(R::Malformed)),
            (&["token=\"a.b.c\""], Err(R::Malformed)),
            (&["token=a b"], Err(R::Malformed)),
            (&["token=DPoP a"], Err(R::Bound)),
            (&["token= a"], Err(R::Malformed)),
            (&["token=aaaaaaaaaa"], Ok(Some("aaaaaaaaaa"))),
            (&["token=aaaaaaaaaaa"], Err(R::AuthorizationTooLarge)),
        ] {
            let headers = headers_of(cookies);
            let token = token_of(&headers, "token", 10);
            let token = token.map(|token| token.map(Bearer::as_str));
            assert_eq!(token, expected, "{cookies:?}");
        }
    }

    #[test]
    fn a_part_of_a_cookie_has_its_name_and_a_number() {
        for (cookies, expected) in [
            (&["a=1; session.0=x", "session.1=y"][..], Some("session.0")),
            (&["session_1=x"], Some("session_1")),
            (&["session-12 =x"], Some("session-12")),
            (&["session=x", "session0=x"], None),
            (&["session.=x; session.a=x; session.0a=x"], None),
            (&["xsession.0=x", "Session.0=x"], None),
            (&[], None),
        ] {
            let headers = headers_of(cookies);
            assert_eq!(part_of(&headers, "session"), expected, "{cookies:?}");
        }
    }

    #[test]
    fn equal_cookies_are_one_and_different_ones_are_sent_twice() {
        let repeated = Err(InvalidToken::AuthorizationRepeated);
        for (cookies, expected) in [
            (&["token=a; token=a"][..], Ok(Some("a"))),
            (&["token=a; x=1", "token=a", "token =a"], Ok(Some("a"))),
            (&["token=a; token=b"], repeated),
            (&["token=a", "token=b"], repeated),
            (&["token=a; token="], repeated),
            (&["token=a; token=a; token =b"], repeated),
        ] {
            let headers = headers_of(cookies);
            let token = token_of(&headers, "token", 10);
            let token = token.map(|token| token.map(Bearer::as_str));
            assert_eq!(token, expected, "{cookies:?}");
        }
    }

    #[test]
    fn the_other_cookies_stay_in_one_field() {
        for (cookies, left) in [
            (&["token=a.b.c"][..], Some("")),
            (&["x=1; token=a; y=2"], Some("x=1; y=2")),
            (&["x=1", "token=a", "y"], Some("x=1; y")),
            (&["token=a; token=b; x=1"], Some("x=1")),
            (&["; x=1;; token=a;", ""], Some("x=1")),
            (&["token; tokens=1; xtoken=a; a=token=b"], None),
            (&["x=\"token\"; token-b=1; b.token=2"], None),
            (&[], None),
        ] {
            let found = cookies_without(&headers_of(cookies), "token");
            assert_eq!(found.as_deref(), left.map(str::as_bytes), "{cookies:?}");
        }
    }

    /// Each of them once: with all before it at each, this takes minutes.
    #[test]
    fn as_many_equals_signs_as_a_head_holds_are_read_once() {
        let cookie = format!("x{}", "=".repeat(1 << 20));
        assert_eq!(cookies_without(&headers_of(&[&cookie]), "to-ken"), None);
    }

    #[test]
    fn a_cookie_that_some_program_reads_as_the_token_is_removed() {
        for cookie in [
            "to-ken =T",
            "to-ken\t=T",
            "\"to-ken\"=T",
            "=to-ken=T",
            "b=1,to-ken=T",
            "b=1, to-ken =T",
            "b=1 to-ken=T",
            "b=\"1\"to-ken=T",
            "\u{a0}to-ken\u{a0}=T",
            "TO-KEN=T",
            "to_ken=T",
            "to.ken=T",
            "to-ken=\"T\"",
            "to-ken==T",
        ] {
            let found = cookies_without(&headers_of(&["a=1", cookie]), "to-ken");
            assert_eq!(found.as_deref(), Some(&b"a=1"[..]), "{cookie}");
        }
    }
}
