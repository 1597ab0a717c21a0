//! What holds of the text of every address that is configured: of the auth server, of a key set, of the service.

use std::net::IpAddr;

use http::uri::Authority;

/// Whether there is no port or one that exists: `Authority` takes any number, and then has none.
pub(crate) fn has_sound_port(authority: &Authority) -> bool {
    authority.as_str() == authority.host() || authority.port_u16().is_some_and(|port| port != 0)
}

/// Whether what is sent to this host of a URL stays on this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// An address as it may be printed, usable or not: without user and password.
pub(crate) fn without_credentials(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let shown = rest.rsplit_once('@').map_or(rest, |(_, shown)| shown);
    scheme + shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_holds_no_password() {
        for (text, shown) in [
            ("nacos://me:hush@a,b:1/auth", "nacos://a,b:1/auth"),
            ("nacos://me:hu@sh@a/auth", "nacos://a/auth"),
            ("http://me:hush@a/auth", "http://a/auth"),
            ("me:hush@a", "a"),
            ("http://a/auth", "http://a/auth"),
            ("", ""),
        ] {
            assert_eq!(without_credentials(text), shown);
        }
    }

    #[test]
    fn a_port_has_to_exist() {
        for (authority, is_sound) in [
            ("a", true),
            ("a:1", true),
            ("[::1]:65535", true),
            ("a:0", false),
            ("a:65536", false),
        ] {
            let authority = Authority::from_static(authority);
            assert_eq!(has_sound_port(&authority), is_sound, "{authority}");
        }
    }
}
