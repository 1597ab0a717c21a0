//! What the service is told about the client's connection: `X-Forwarded-For`, `-Proto`, and `Forwarded`
//! (RFC 7239). No `X-Forwarded-Host` is added: the service gets the client's `Host` as it was.
//!
//! They are for logs and links. Nothing here, and nothing that a client writes into them, decides
//! whether a request is let through.

use std::net::IpAddr;

use bytes::Bytes;
use contract::http::header_alias::cgi_equal;
use http::{HeaderName, HeaderValue, header};
use pingora::http::RequestHeader;
use pingora::{ErrorType, OrErr};

use crate::request::header_list::remove_where;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whose word counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ForwardedPolicy {
    /// The client's, who may be a gateway: our peer is added to what it says.
    Append,
    /// Ours alone: what the client says about itself is removed.
    Overwrite,
    /// The client's alone: nothing is touched.
    Off,
}

/// The client's side of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) address: Option<IpAddr>,
    pub(crate) tls: bool,
}

impl Client {
    const fn scheme(self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

impl ForwardedPolicy {
    /// Brings the fields of `request` up to date.
    pub(crate) fn apply(self, request: &mut RequestHeader, client: Client) -> pingora::Result<()> {
        match self {
            Self::Off => Ok(()),
            Self::Append => append(request, client),
            Self::Overwrite => {
                remove_where(request, is_client_address_header);
                append(request, client)
            }
        }
    }
}

fn append(request: &mut RequestHeader, client: Client) -> pingora::Result<()> {
    if let Some(address) = client.address {
        let address = address.to_canonical().to_string();
        let all = joined(request, &FOR, &address)?;
        request.insert_header("X-Forwarded-For", all)?;
        if request.headers.contains_key(header::FORWARDED) {
            let ours = format!("for={};proto={}", quoted(&address), client.scheme());
            let all = joined(request, &header::FORWARDED, &ours)?;
            request.insert_header("Forwarded", all)?;
        }
    }
    if !request.headers.contains_key(&PROTO) {
        let scheme = HeaderValue::from_static(client.scheme());
        request.insert_header("X-Forwarded-Proto", scheme)?;
    }
    Ok(())
}

/// All fields of the name as one list (RFC 9110 §5.3), and `ours` after them.
fn joined(request: &RequestHeader, name: &HeaderName, ours: &str) -> pingora::Result<HeaderValue> {
    let fields = request.headers.get_all(name).into_iter();
    let mut all = Vec::with_capacity(ours.len());
    for field in fields.filter(|field| !field.is_empty()) {
        all.extend_from_slice(field.as_bytes());
        all.extend_from_slice(b", ");
    }
    all.extend_from_slice(ours.as_bytes());
    HeaderValue::from_maybe_shared(Bytes::from(all))
        .or_err(ErrorType::InvalidHTTPHeader, "forwarded")
}

/// An IPv6 address has colons, which need quotes and brackets (RFC 7239 §6).
fn quoted(address: &str) -> String {
    if address.contains(':') {
        format!("\"[{address}]\"")
    } else {
        address.to_owned()
    }
}

/// Whether services take a field of this name for the client's address or the way it came. Look-alikes
/// too: a CGI-style service cannot tell them apart.
pub(crate) fn is_client_address_header(name: &str) -> bool {
    /// By how they begin and end, because no list of what services believe is complete.
    const FAMILY: &str = "x-forwarded-";
    const ENDINGS: [&str; 12] = [
        // `X-`, `True-`, `Proxy-`, `WL-Proxy-`, `Fastly-`, …
        "-client-ip",
        "-clientip",
        "-socketip",
        // `CF-`, `DO-`, …
        "-connecting-ip",
        "-connecting-ipv6",
        "-external-address",
        "-originating-ip",
        "-real-ip",
        "-remote-addr",
        "-remote-ip",
        // `X-Appengine-`, `X-Proxy`, …
        "user-ip",
        // Alone, or `X-Original-`, `X-Vercel-`, …
        "forwarded-for",
    ];
    const NAMES: [&str; 8] = [
        "client-ip",
        "forwarded",
        "front-end-https",
        "remote-addr",
        "remote-ip",
        "x-forwarded",
        "x-scheme",
        "x-url-scheme",
    ];
    let ends = |ending: &&str| {
        let at = name.len().checked_sub(ending.len());
        at.and_then(|at| name.get(at..))
            .is_some_and(|end| cgi_equal(end, ending))
    };
    let begins = name.get(..FAMILY.len());
    NAMES.iter().any(|known| cgi_equal(name, known))
        || begins.is_some_and(|begins| cgi_equal(begins, FAMILY))
        || ENDINGS.iter().any(ends)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn sent(policy: ForwardedPolicy, client: Client, fields: &[(&'static str, &str)]) -> String {
        let mut request = RequestHeader::build("GET", b"/", None).unwrap();
        request.insert_header("Host", "a:1").unwrap();
        for (name, value) in fields {
            request.append_header(*name, *value).unwrap();
        }
        policy.apply(&mut request, client).unwrap();
        request.remove_header("Host");
        let mut wire = Vec::new();
        request.header_to_h1_wire(&mut wire);
        let mut lines: Vec<&str> = std::str::from_utf8(&wire).unwrap().lines().collect();
        lines.sort_unstable();
        lines.join(" | ")
    }

    const PLAIN: Client = Client {
        address: Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7))),
        tls: false,
    };

    #[test]
    fn our_peer_is_added_to_what_a_gateway_says() {
        for (fields, expected) in [
            (
                &[][..],
                "X-Forwarded-For: 10.0.0.7 | X-Forwarded-Proto: http",
            ),
            (
                &[
                    ("X-Forwarded-For", "203.0.113.7"),
                    ("X-Forwarded-For", "198.51.100.1"),
                    ("X-Forwarded-Proto", "https"),
                    ("X-Forwarded-Host", "shop.example"),
                ],
                "X-Forwarded-For: 203.0.113.7, 198.51.100.1, 10.0.0.7 | \
                 X-Forwarded-Host: shop.example | X-Forwarded-Proto: https",
            ),
            (
                &[("Forwarded", "for=203.0.113.7")],
                "Forwarded: for=203.0.113.7, for=10.0.0.7;proto=http | X-Forwarded-For: 10.0.0.7 | \
                 X-Forwarded-Proto: http",
            ),
        ] {
            assert_eq!(sent(ForwardedPolicy::Append, PLAIN, fields), expected);
        }
    }

    #[test]
    fn our_word_alone_counts_where_that_is_asked_for() {
        let client = Client {
            address: Some("::ffff:10.0.0.7".parse().unwrap()),
            tls: true,
        };
        let fields = [
            ("X-Forwarded-For", "203.0.113.7"),
            ("X_Forwarded_For", "203.0.113.7"),
            ("X-Real-IP", "203.0.113.7"),
            ("Forwarded", "for=203.0.113.7"),
            ("X-Forwarded-Proto", "http"),
            ("X-Forwarded-Prefix", "/admin"),
            ("X-Forwarded-Client-Cert", "Subject=\"CN=admin\""),
            ("x_forwarded.user", "admin"),
            ("X-Forwarded", "for=203.0.113.7"),
            ("X-Client-IP", "203.0.113.7"),
            ("X_Client_Ip", "203.0.113.7"),
            ("True-Client-IP", "203.0.113.7"),
            ("X-Cluster-Client-IP", "203.0.113.7"),
            ("Client-IP", "203.0.113.7"),
            ("CLIENT_IP", "203.0.113.7"),
            ("Proxy-Client-IP", "203.0.113.7"),
            ("WL-Proxy-Client-IP", "203.0.113.7"),
            ("Wl.Proxy_Client.Ip", "203.0.113.7"),
            ("Fastly-Client-IP", "203.0.113.7"),
            ("X-Original-Forwarded-For", "203.0.113.7"),
            ("CF-Connecting-IP", "203.0.113.7"),
            ("CF-Connecting-IPv6", "2001:db8::7"),
            ("DO-Connecting-IP", "203.0.113.7"),
            ("Forwarded-For", "203.0.113.7"),
            ("Forwarded_For", "203.0.113.7"),
            ("X-Vercel-Forwarded-For", "203.0.113.7"),
            ("X-Azure-ClientIP", "203.0.113.7"),
            ("X-Azure-SocketIP", "203.0.113.7"),
            ("X-Appengine-User-Ip", "203.0.113.7"),
            ("X-ProxyUser-Ip", "203.0.113.7"),
            ("X-Remote-IP", "203.0.113.7"),
            ("X-Remote-Addr", "203.0.113.7"),
            ("Remote_Addr", "203.0.113.7"),
            ("X-Originating-IP", "203.0.113.7"),
            ("X-Envoy-External-Address", "203.0.113.7"),
            ("X-Scheme", "http"),
            ("X-Url-Scheme", "http"),
            ("Front-End-Https", "off"),
        ];
        assert_eq!(
            sent(ForwardedPolicy::Overwrite, client, &fields),
            "X-Forwarded-For: 10.0.0.7 | X-Forwarded-Proto: https"
        );
    }

    #[test]
    fn what_only_looks_alike_is_left_alone() {
        for name in [
            "X-Forwarding",
            "X-Forward-For",
            "X-Client",
            "Forwarded-By",
            "Client-IP-Version",
            "XClient-IP",
            "X-Original-URL",
            "X-Real-User",
            "Remote-User",
            "X-IP",
            "X-Scheme-Version",
        ] {
            let fields = [(name, "1")];
            let sent = sent(ForwardedPolicy::Overwrite, PLAIN, &fields);
            assert!(sent.contains(name), "{sent}");
        }
    }

    #[test]
    fn nothing_is_touched_where_that_is_asked_for() {
        let fields = [("X-Forwarded-For", "203.0.113.7")];
        assert_eq!(
            sent(ForwardedPolicy::Off, PLAIN, &fields),
            "X-Forwarded-For: 203.0.113.7"
        );
    }

    #[test]
    fn an_ipv6_address_is_quoted_in_forwarded() {
        let client = Client {
            address: Some("2001:db8::7".parse().unwrap()),
            tls: true,
        };
        let sent = sent(ForwardedPolicy::Append, client, &[("Forwarded", "for=_x")]);
        assert!(
            sent.starts_with("Forwarded: for=_x, for=\"[2001:db8::7]\";proto=https | "),
            "{sent}"
        );
    }
}
