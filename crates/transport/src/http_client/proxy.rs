//! The proxy through which the keys of an issuer are fetched: its table names one, or the environment,
//! whose variables are read as curl reads them.

use postern_process::command_line::unusable_variable;
use reqwest::{ClientBuilder, NoProxy, Proxy};
use secrecy::{ExposeSecret, SecretString};

/// The variables, in the order of their precedence.
const VARIABLES: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
/// Hosts that are reached directly: for the proxy they would be its own machine.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// A proxy to key servers with https.
#[derive(Debug, Clone)]
pub struct KeysProxy {
    /// The URL, which may hold a password; `None` if the variable cannot be used.
    url: Option<SecretString>,
    /// The variable that names the proxy; `None` for a proxy of a table.
    variable: Option<&'static str>,
    /// The hosts that are reached without the proxy, separated by commas.
    bypassed: String,
}

impl KeysProxy {
    /// Returns the proxy of a table, which is for every host.
    #[must_use]
    pub fn from_table(url: String) -> Self {
        Self {
            url: Some(url.into()),
            variable: None,
            bypassed: String::new(),
        }
    }

    /// Returns the proxy of the environment; `None` if it names no proxy, and with `NO_PROXY=*`.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let read = |name: &str| {
            let value = variable(name)?.trim().to_owned();
            (!value.is_empty()).then_some(value)
        };
        let mut variables = VARIABLES.into_iter();
        let (name, url) = variables.find_map(|name| Some((name, read(name)?)))?;
        let no_proxy = read("no_proxy").or_else(|| read("NO_PROXY"));
        let mut bypassed = String::new();
        for entry in no_proxy.unwrap_or_default().split(is_separator) {
            let host = bypassed_host(entry);
            if host == "*" {
                return None;
            }
            bypassed += &host;
            bypassed.push(',');
        }
        Some(Self {
            url: http_url(&url).map(SecretString::from),
            variable: Some(name),
            bypassed: bypassed + LOOPBACK,
        })
    }

    /// Returns the warning of a variable: its proxy may not be meant for keys, or cannot be used.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let name = self.variable?;
        if self.url.is_none() {
            return Some(unusable_variable(
                "keys are fetched without a proxy",
                name,
                "expected http://[USER:PASSWORD@]HOST:PORT, or https://",
            ));
        }
        Some(format!(
            "{name}: the keys of issuers are fetched through this proxy, except from this machine and the hosts of NO_PROXY; `keys-proxy = \"none\"` of an [[issuer]] turns that off"
        ))
    }

    /// Configures a client whose requests with https go through this proxy.
    pub(super) fn apply_to(&self, client: ClientBuilder) -> reqwest::Result<ClientBuilder> {
        let Some(url) = &self.url else {
            return Ok(client);
        };
        let bypassed = NoProxy::from_string(&self.bypassed);
        Ok(client.proxy(Proxy::https(url.expose_secret())?.no_proxy(bypassed)))
    }
}

/// Returns an entry of `NO_PROXY` in the library's form: without port, brackets, final dot and leading `*`.
fn bypassed_host(entry: &str) -> String {
    let host = match entry.rsplit_once(':') {
        Some((host, port))
            if (host.ends_with(']') || !host.contains(':'))
                && port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            host
        }
        _ => entry,
    };
    let host = host.trim_end_matches('.').replace(['[', ']'], "");
    match host.strip_prefix('*') {
        Some(domain) if !domain.is_empty() => domain.to_owned(),
        _ => host,
    }
}

fn is_separator(c: char) -> bool {
    c == ',' || c.is_whitespace()
}

/// Returns the URL of a proxy that speaks HTTP, as one without a scheme does.
fn http_url(text: &str) -> Option<String> {
    let url = match text.split_once("://") {
        None => format!("http://{text}"),
        Some((scheme, rest)) => format!("{}://{rest}", scheme.to_ascii_lowercase()),
    };
    // The library drops line ends, and takes quotes for a part of the host.
    if text.starts_with('\'') || url.contains(char::is_whitespace) || url.contains('"') {
        return None;
    }
    let is_http = url.starts_with("http://") || url.starts_with("https://");
    (is_http && Proxy::https(&url).is_ok()).then_some(url)
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
            (
                &[("HTTPS_PROXY", "http://p:1"), ("no_proxy", "a, *:1")],
                None,
            ),
        ] {
            let found = proxy(variables);
            let variable = found.as_ref().and_then(|proxy| proxy.variable);
            assert_eq!(variable, name, "{variables:?}");
        }
    }

    #[test]
    fn hosts_without_a_proxy_are_read_in_each_spelling() {
        for (entry, expected) in [
            ("idp.corp", "idp.corp"),
            ("idp.corp.", "idp.corp"),
            (".corp", ".corp"),
            ("*.corp", ".corp"),
            ("idp.corp:8443", "idp.corp"),
            ("*.corp:443", ".corp"),
            ("*", "*"),
            ("*.", "*"),
            ("*:443", "*"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3:80", "10.1.2.3"),
            ("fd00::1", "fd00::1"),
            ("[fd00::1]", "fd00::1"),
            ("[fd00::1]:443", "fd00::1"),
            ("idp.corp:https", "idp.corp:https"),
        ] {
            assert_eq!(bypassed_host(entry), expected, "{entry}");
        }
    }

    #[test]
    fn a_value_that_is_no_proxy_is_named_and_no_password_printed() {
        for (value, is_used) in [
            ("http://me:hush@proxy:3128", true),
            ("me:hush@proxy:3128", true),
            ("proxy", true),
            ("https://me:hush@proxy", true),
            ("HTTP://me:hush@proxy", true),
            ("http://[::1]:3128/path", true),
            (" http://me:hush@proxy:3128\n", true),
            ("\tproxy\r\n", true),
            ("\"http://me:hush@proxy:3128\"", false),
            ("'http://me:hush@proxy:3128'", false),
            ("\"proxy:3128\"", false),
            ("http://proxy:31\n28", false),
            ("proxy other", false),
            ("http://", false),
            ("http://me:hush@", false),
            ("http://me:hush@proxy:80:80", false),
            ("socks5://me:hush@proxy:1080", false),
            ("socks5h://proxy:1080", false),
            ("ftp://me:hush@proxy", false),
        ] {
            let found = proxy(&[("https_proxy", value)]);
            let warning = found
                .as_ref()
                .and_then(KeysProxy::warning)
                .unwrap_or_default();
            let expected = if is_used {
                "https_proxy: the keys of issuers are fetched through this proxy"
            } else {
                "keys are fetched without a proxy: https_proxy: expected http://"
            };
            assert!(warning.starts_with(expected), "{value:?}: {warning}");
            let is_printed = format!("{found:?} {warning}").contains("hush");
            assert!(!is_printed, "{value}: {warning}");
        }
        let of_table = KeysProxy::from_table("http://proxy:3128".to_owned());
        assert_eq!(of_table.warning(), None);
    }
}
