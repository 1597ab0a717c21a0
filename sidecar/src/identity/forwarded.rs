//! Headers about the client's connection: `X-Forwarded-For`, `-Proto`, and `Forwarded` (RFC 7239).
//! No `X-Forwarded-Host` is added: the service gets the client's `Host` unchanged.
//!
//! They are for logs and links; no decision about a request depends on them.

use std::sync::LazyLock;

use http::HeaderValue;
use postern_http::header_alias::cgi_equal;
use postern_http::path::overrides::{names_another_path, sets_a_variable};

use crate::identity::client::Client;
use crate::identity::service_fields::ServiceFields;

/// Trust in forwarding headers that arrive with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ForwardedPolicy {
    /// Keep them, for a gateway in front, and add the peer's address.
    Append,
    /// Remove them, and write new ones.
    Overwrite,
    /// Keep them, and add nothing.
    Off,
}

/// Removes the fields that name another path, unless a trusted proxy sent them, and those that set variables
/// of the service in any case: a proxy passes them on from its clients.
pub(crate) fn remove_path_overrides(request: &mut ServiceFields<'_>, client: &Client) {
    let is_removed = |name: &str| {
        sets_a_variable(name) || (!client.is_trusted_proxy && names_another_path(name))
    };
    request.remove_where(is_removed);
}

impl ForwardedPolicy {
    /// Applies the policy to the fields of `request`.
    pub(crate) fn apply(self, request: &mut ServiceFields<'_>, client: &Client) {
        if self == Self::Overwrite {
            request.remove_where(is_client_address_header);
        }
        if self != Self::Off {
            append(request, client);
        }
    }
}

fn append(request: &mut ServiceFields<'_>, client: &Client) {
    if let Some(address) = &client.text {
        if request.contains("x-forwarded-for") {
            join(request, "X-Forwarded-For", address.as_bytes())
        } else {
            request.set("X-Forwarded-For", address.clone())
        }
        if request.contains("forwarded") {
            let ours = match address.to_str().unwrap_or_default() {
                // The colons of IPv6 need quotes (RFC 7239 §6).
                ipv6 if ipv6.contains(':') => format!("for=\"[{ipv6}]\";proto={}", client.scheme()),
                address => format!("for={address};proto={}", client.scheme()),
            };
            join(request, "Forwarded", ours.as_bytes());
        }
    }
    // A gateway in front knows the scheme of the client; the sidecar knows this connection's alone.
    if !request.contains("x-forwarded-proto") {
        request.set(
            "X-Forwarded-Proto",
            HeaderValue::from_static(client.scheme()),
        );
    }
}

/// Joins all fields of the name into one list (RFC 9110 §5.3) that ends with `ours`.
fn join(request: &mut ServiceFields<'_>, name: &'static str, ours: &[u8]) {
    let mut joined = Vec::new();
    for field in request.values(name) {
        if !field.is_empty() {
            joined.extend_from_slice(field);
            joined.extend_from_slice(b", ");
        }
    }
    joined.extend_from_slice(ours);
    request.set_made(name, joined);
}

/// Returns true for a field by which a proxy speaks about the request or its client.
pub(crate) fn is_of_a_proxy(name: &str) -> bool {
    is_client_address_header(name) || sets_a_variable(name) || names_another_path(name)
}

/// Names of fields about the client, a line each; `*` stands at the open end of a name.
static CLIENT_FIELDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    include_str!("client_fields.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect()
});

/// Returns true if a service may read the client's address, host or scheme from a field of this name,
/// or from one that CGI maps to the same variable.
pub(crate) fn is_client_address_header(name: &str) -> bool {
    for known in CLIENT_FIELDS.iter() {
        let (part, known) = match (known.strip_prefix('*'), known.strip_suffix('*')) {
            (Some(end), _) => (name.get(name.len().saturating_sub(end.len())..), end),
            (_, Some(start)) => (name.get(..start.len()), start),
            _ => (Some(name), *known),
        };
        if part.is_some_and(|part| cgi_equal(part, known)) {
            return true;
        }
    }
    // `forwarded` alone, or as a word of `X-Forwarded-For`, `Fly-Forwarded-Proto`.
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| word.eq_ignore_ascii_case("forwarded"))
}

#[cfg(test)]
mod tests {
    use postern_transport::net::client_address::TrustedProxies;

    use super::*;
    use crate::identity::service_fields::tests::{lines_of, received};

    fn sent(policy: ForwardedPolicy, client: &Client, fields: &[(&'static str, &str)]) -> String {
        let mut fields = received(fields);
        policy.apply(&mut fields, client);
        let mut lines = lines_of(&fields);
        lines.sort_unstable();
        lines.join(" | ")
    }

    fn client(address: &str, tls: bool) -> Client {
        Client::new(address.parse().ok(), tls, &TrustedProxies::default())
    }

    fn plain() -> Client {
        client("10.0.0.7", false)
    }

    /// Names of fields about the client, and names that are only similar.
    const ABOUT_THE_CLIENT: &str = "X-Forwarded-For X_Forwarded_For X-Real-IP Forwarded X-Forwarded-Proto \
        X-Forwarded-Prefix X-Forwarded-Client-Cert x_forwarded.user X-Forwarded X-Client-IP X_Client_Ip \
        True-Client-IP X-Cluster-Client-IP Client-IP CLIENT_IP Proxy-Client-IP WL-Proxy-Client-IP \
        Wl.Proxy_Client.Ip Fastly-Client-IP X-Original-Forwarded-For CF-Connecting-IP CF-Connecting-IPv6 \
        DO-Connecting-IP Forwarded-For Forwarded_For X-Vercel-Forwarded-For X-Azure-ClientIP \
        X-Azure-SocketIP X-Appengine-User-Ip X-ProxyUser-Ip X-Remote-IP X-Remote-Addr Remote_Addr \
        X-Originating-IP X-Envoy-External-Address X-Scheme X-Url-Scheme Front-End-Https Forwarded-By \
        X-NF-Client-Connection-IP CloudFront-Viewer-Address CloudFront-Forwarded-Proto \
        cloudfront_viewer_tls CloudFront-Is-Mobile-Viewer Fly-Client-IP Fly-Forwarded-Proto \
        Fly-Forwarded-Port Fly-Forwarded-Ssl Fastly-SSL Fastly-Orig-Host Fastly-Client CF-Visitor \
        CF-Pseudo-IPv4 EO-Connecting-IP Ali-CDN-Real-IP Cdn-Src-Ip X-Client-Scheme X-Client-Port \
        X-Real-Port X-True-IP X-Sucuri-ClientIP Incap-Client-IP X-Vercel-Proxied-For \
        X-MS-Forwarded-Client-IP X-Host X-Original-Host X-HTTP-Host-Override X-Envoy-Original-Host \
        X-Backend-Host Proxy-Host Disguised-Host WAS-DEFAULT-HOSTNAME X-AppService-Proto X-ARR-SSL \
        X-AppEngine-Https X-AppEngine-Default-Version-Hostname WL-Proxy-SSL $WSRA $WSSC $WSIS HTTPS \
        X-Https X-Proto Ssl-Offloaded XForwarded-For OriginalForwarded_For";
    const SIMILAR: &str = "X-Forwarding X-Forward-For X-Client Client-IP-Version XClient-IP X-Original-URL \
        X-Real-User Remote-User X-IP X-Scheme-Version X-GitHub-Enterprise-Host X-Hosted X-Protocol-Version \
        Upgrade-Insecure-Requests X-Auth-Request-User X-Goog-IAP-JWT-Assertion CF-Ray Https-Only \
        Sec-WebSocket-Protocol";

    #[test]
    fn overwrite_removes_every_field_about_the_client_and_no_other() {
        let client = client("::ffff:10.0.0.7", true);
        let fields = ABOUT_THE_CLIENT.split_whitespace();
        let fields: Vec<_> = fields.map(|name| (name, "203.0.113.7")).collect();
        assert_eq!(
            sent(ForwardedPolicy::Overwrite, &client, &fields),
            "X-Forwarded-For: 10.0.0.7 | X-Forwarded-Proto: https"
        );
        for name in SIMILAR.split_whitespace() {
            let sent = sent(ForwardedPolicy::Overwrite, &plain(), &[(name, "1")]);
            assert!(sent.contains(name), "{sent}");
        }
    }

    #[test]
    fn an_ipv6_address_is_quoted_in_forwarded() {
        let client = client("2001:db8::7", true);
        let sent = sent(ForwardedPolicy::Append, &client, &[("Forwarded", "for=_x")]);
        assert!(
            sent.starts_with("Forwarded: for=_x, for=\"[2001:db8::7]\";proto=https | "),
            "{sent}"
        );
    }
}
