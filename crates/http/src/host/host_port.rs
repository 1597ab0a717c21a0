//! Host, port and credentials in the text of an address.

use http::uri::Authority;

/// A port that nothing can listen on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("port '{0}' is not between 1 and 65535")]
pub struct NoPort(String);

/// Returns the port after the host, which holds no user: for a number out of range `Authority` has
/// no port.
///
/// # Errors
/// [`NoPort`] for a port that does not exist.
pub fn port_of(authority: &Authority) -> Result<Option<u16>, NoPort> {
    let Some(text) = authority.as_str().strip_prefix(authority.host()) else {
        return Ok(None);
    };
    match (text.strip_prefix(':'), authority.port_u16()) {
        (None, _) => Ok(None),
        (Some(_), Some(port @ 1..)) => Ok(Some(port)),
        (Some(text), _) => Err(NoPort(text.to_owned())),
    }
}

/// Parses `HOST` or `HOST:PORT`, an IPv6 address in brackets; `None` for anything else.
#[must_use]
pub fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    let authority: Authority = text.parse().ok()?;
    let (host, port) = text.split_at_checked(authority.host().len())?;
    if host.is_empty() {
        return None;
    }
    // `Authority::port` is `None` also for a port that is not a number.
    match port.strip_prefix(':') {
        Some(port) => Some((host, Some(port.parse().ok()?))),
        None if port.is_empty() => Some((host, None)),
        None => None,
    }
}

/// Returns true for a URL, even for a mistyped one, whose query may be a secret as well.
#[must_use]
pub fn is_url(text: &str) -> bool {
    text.contains("://") || text.starts_with("http:") || text.starts_with("https:")
}

/// Returns an address for logs and pages, valid or not, without user, password, query and fragment,
/// which may hold secrets.
#[must_use]
pub fn redacted(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let (address, hidden) = match rest.split_once(['?', '#']) {
        None => (rest, ""),
        // The text before the mark may be the beginning of a password.
        Some((_, behind)) if behind.contains('@') => ("", "…"),
        Some((address, _)) => (address, "?…"),
    };
    match address.rsplit_once('@') {
        Some((_, address)) => scheme + address + hidden,
        None => scheme + address + hidden,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_holds_no_secret() {
        for (text, expected) in [
            ("nacos://me:hush@a,b:1/auth", "nacos://a,b:1/auth"),
            ("nacos://me:hu@sh@a/auth", "nacos://a/auth"),
            ("http://me:hush@a/auth", "http://a/auth"),
            ("me:hush@a", "a"),
            ("http://a/auth", "http://a/auth"),
            ("http://a/keys?key=hush", "http://a/keys?…"),
            ("http://a/keys#hush", "http://a/keys?…"),
            ("http://me:hush@a/keys?hush#hush", "http://a/keys?…"),
            ("http://me:hu?sh@a/keys", "http://…"),
            ("http://me:hu#sh@a/keys?b", "http://…"),
            ("a/keys?hush", "a/keys?…"),
            ("", ""),
        ] {
            assert_eq!(redacted(text), expected);
        }
    }

    #[test]
    fn a_host_has_no_user_and_a_port_is_a_number() {
        for (text, expected) in [
            ("a", Some(("a", None))),
            ("a:1", Some(("a", Some(1)))),
            ("[::1]:1", Some(("[::1]", Some(1)))),
            ("", None),
            (":1", None),
            ("::1", None),
            ("me@a", None),
            ("a/b", None),
            ("a:0", Some(("a", Some(0)))),
            ("a:65536", None),
            ("a:", None),
            ("a:x", None),
        ] {
            assert_eq!(host_and_port(text), expected, "{text}");
        }
    }
}
