//! The proxy through which the keys of an issuer are fetched: its table names one, or the environment,
//! whose variables are read as curl reads them.

use reqwest::{ClientBuilder, NoProxy, Proxy};
use secrecy::{ExposeSecret, SecretString};

/// In the order of their precedence.
const VARIABLES: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
/// Hosts that are reached directly: at the proxy they are another machine.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// A proxy to key servers with https.
#[derive(Debug, Clone)]
pub(crate) struct KeysProxy {
    /// May hold a password.
    url: SecretString,
    /// The variable that names it; `None` for a proxy of a table.
    variable: Option<&'static str>,
    /// The hosts that are reached without it, separated by commas.
    bypassed: String,
}

impl KeysProxy {
    /// Returns the proxy of a table, which is for every host.
    pub(crate) fn from_table(url: String) -> Self {
        Self {
            url: url.into(),
            variable: None,
            bypassed: String::new(),
        }
    }

    /// Returns the proxy of the environment; `None` without one, and with `NO_PROXY=*`.
    pub(crate) fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let read = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut variables = VARIABLES.into_iter();
        let (name, url) = variables.find_map(|name| Some((name, read(name)?)))?;
        let bypassed = read("no_proxy").or_else(|| read("NO_PROXY"));
        let bypassed = bypassed.unwrap_or_default().replace([' ', '\t'], ",");
        // The final dot of a name and the brackets of an address make no difference.
        let plain = |host: &str| host.trim_end_matches('.').replace(['[', ']'], "");
        let bypassed: Vec<_> = bypassed.split(',').map(plain).collect();
        let is_off = bypassed.iter().any(|host| host == "*");
        Some(Self {
            url: http(url).filter(|_| !is_off)?.into(),
            variable: Some(name),
            bypassed: format!("{},{LOOPBACK}", bypassed.join(",")),
        })
    }

    /// Returns the warning of a proxy of the environment: it may not be meant for keys.
    pub(crate) fn warning(&self) -> Option<String> {
        let name = self.variable?;
        Some(format!(
            "{name}: the keys of issuers are fetched through this proxy, but from this machine and hosts of NO_PROXY; `keys-proxy = \"none\"` of an [[issuer]] turns that off"
        ))
    }

    /// Lets requests with https take this proxy.
    pub(super) fn apply_to(&self, client: ClientBuilder) -> reqwest::Result<ClientBuilder> {
        let bypassed = NoProxy::from_string(&self.bypassed);
        let proxy = Proxy::https(self.url.expose_secret())?;
        Ok(client.proxy(proxy.no_proxy(bypassed)))
    }
}

/// Returns the URL of a proxy that speaks HTTP, as one without a scheme does.
fn http(url: String) -> Option<String> {
    match url.split_once("://") {
        None => Some(format!("http://{url}")),
        Some(("http" | "https", _)) => Some(url),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(variables: &[(&str, &str)]) -> Option<KeysProxy> {
        KeysProxy::from_environment(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_first_variable_with_a_value_names_the_proxy() {
        for (variables, name) in [
            (&[][..], None),
            (&[("HTTPS_PROXY", "http://p:1")], Some("HTTPS_PROXY")),
            (&[("ALL_PROXY", "p:1")], Some("ALL_PROXY")),
            (
                &[("HTTPS_PROXY", "http://p:1"), ("https_proxy", "http://q:1")],
                Some("https_proxy"),
            ),
            (
                &[("https_proxy", ""), ("HTTPS_PROXY", "http://p:1")],
                Some("HTTPS_PROXY"),
            ),
            (
                &[("HTTP_PROXY", "http://p:1"), ("http_proxy", "http://p:1")],
                None,
            ),
            (&[("HTTPS_PROXY", ""), ("all_proxy", "")], None),
            (&[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "*")], None),
            (&[("HTTPS_PROXY", "http://p:1"), ("no_proxy", "a, *")], None),
        ] {
            let found = proxy(variables);
            let variable = found.as_ref().and_then(|proxy| proxy.variable);
            assert_eq!(variable, name, "{variables:?}");
        }
    }

    #[test]
    fn another_kind_of_proxy_is_not_used_nor_a_password_printed() {
        for (value, is_used) in [
            ("http://me:hush@proxy:3128", true),
            ("me:hush@proxy:3128", true),
            ("proxy", true),
            ("https://me:hush@proxy", true),
            ("http://[::1]:3128/path", true),
            ("socks5://me:hush@proxy:1080", false),
        ] {
            let found = proxy(&[("https_proxy", value)]);
            assert_eq!(found.is_some(), is_used, "{value}");
            let printed = format!("{found:?} {:?}", found.as_ref().map(KeysProxy::warning));
            assert!(!printed.contains("hush"), "{printed}");
        }
        let of_table = KeysProxy::from_table("http://proxy:3128".to_owned());
        assert_eq!(of_table.warning(), None);
    }
}
