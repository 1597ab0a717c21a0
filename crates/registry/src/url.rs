//! The URL of a registry: `nacos[+https]://[USER@]HOST[:PORT][,HOST[:PORT]…][/PATH]`, with
//! `?NAME=VALUE` for the rest.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use runtime::net::host_port::host_and_port;

/// The default of Nacos, with and without TLS.
const DEFAULT_PORT: u16 = 8848;

/// A parsed URL; what its path means depends on the program.
#[derive(Debug)]
pub(crate) struct RegistryUrl {
    pub(crate) is_https: bool,
    pub(crate) user: Option<String>,
    /// `host:port` each, at least one.
    pub(crate) servers: Vec<String>,
    /// Empty, or with its slash.
    pub(crate) path: String,
    parameters: BTreeMap<String, String>,
}

/// URL parse error. The texts do not repeat the URL: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRegistryUrl {
    /// A URL of another form.
    #[error("expected nacos://[USER@]HOST[:PORT][,HOST[:PORT]…]/…, also with nacos+https")]
    Malformed,
    /// Port 0.
    #[error("a port is between 1 and 65535")]
    Port,
    /// A `%` without two hex digits, bytes that are not text, a blank, or an `@` as itself.
    #[error("user, path and parameters have to be percent-encoded, without blanks")]
    Encoding,
    /// A password in the URL.
    #[error("no password is allowed here: use --registry-password-file")]
    Password,
    /// A user without a password, or a password without a user.
    #[error("a user needs a password, and a password a user")]
    HalfOfCredentials,
    /// A parameter that does not exist here, is given twice, or has an unusable value.
    #[error("the parameter '{0}' is unknown, given twice or has an unusable value")]
    Parameter(String),
    /// A parameter without effect.
    #[error("the parameter '{0}' has an effect only with https")]
    NeedsHttps(&'static str),
}

impl RegistryUrl {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidRegistryUrl> {
        let (is_https, rest) = match text.split_once("://") {
            Some(("nacos", rest)) => (false, rest),
            Some(("nacos+https", rest)) => (true, rest),
            _ => return Err(InvalidRegistryUrl::Malformed),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // The end of a password with a slash or a question mark.
        if path.contains('@') || query.contains('@') {
            return Err(InvalidRegistryUrl::Encoding);
        }
        if text.contains('#') {
            return Err(InvalidRegistryUrl::Malformed);
        }
        let (user, servers) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some((user, _)) if user.contains(':') => return Err(InvalidRegistryUrl::Password),
            Some(("", _)) => return Err(InvalidRegistryUrl::Malformed),
            Some((user, servers)) => (Some(decoded(user)?), servers),
        };
        Ok(Self {
            is_https,
            user,
            servers: servers.split(',').map(server).collect::<Result<_, _>>()?,
            path: path.to_owned(),
            parameters: parameters(query)?,
        })
    }

    /// Removes a parameter and returns its value.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.parameters.remove(name)
    }

    /// Removes a parameter that only https gives an effect.
    pub(crate) fn take_with_https(
        &mut self,
        name: &'static str,
        is_https: bool,
    ) -> Result<Option<String>, InvalidRegistryUrl> {
        match self.take(name) {
            Some(_) if !is_https => Err(InvalidRegistryUrl::NeedsHttps(name)),
            value => Ok(value),
        }
    }

    /// Returns an error for a parameter that was not taken.
    pub(crate) fn finished(&self) -> Result<(), InvalidRegistryUrl> {
        match self.parameters.keys().next() {
            None => Ok(()),
            Some(unknown) => Err(InvalidRegistryUrl::Parameter(unknown.clone())),
        }
    }
}

fn server(text: &str) -> Result<String, InvalidRegistryUrl> {
    match host_and_port(text) {
        None => Err(InvalidRegistryUrl::Malformed),
        Some((_, Some(0))) => Err(InvalidRegistryUrl::Port),
        Some((host, port)) => Ok(format!("{host}:{}", port.unwrap_or(DEFAULT_PORT))),
    }
}

fn parameters(query: &str) -> Result<BTreeMap<String, String>, InvalidRegistryUrl> {
    let mut parameters = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value)?;
        if value.is_empty() || parameters.insert(name.to_owned(), value).is_some() {
            return Err(InvalidRegistryUrl::Parameter(name.to_owned()));
        }
    }
    Ok(parameters)
}

pub(crate) fn decoded(text: &str) -> Result<String, InvalidRegistryUrl> {
    let escapes_nothing = |(at, _): (usize, &str)| {
        let digits = text.as_bytes().get(at + 1..at + 3);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if text.match_indices('%').any(escapes_nothing) {
        return Err(InvalidRegistryUrl::Encoding);
    }
    let decoded = percent_decode_str(text).decode_utf8();
    let is_blank = |character: char| character.is_control() || character.is_whitespace();
    match decoded {
        Ok(text) if !text.contains(is_blank) => Ok(text.into_owned()),
        _ => Err(InvalidRegistryUrl::Encoding),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn parsed(text: &str) -> Result<RegistryUrl, InvalidRegistryUrl> {
        let url = RegistryUrl::parse(&format!("nacos://{text}"))?;
        url.finished().map(|()| url)
    }

    #[test]
    fn a_url_names_servers_and_perhaps_a_user() {
        for (text, servers, user) in [
            ("nacos", "nacos:8848", None),
            ("10.0.0.1:8849", "10.0.0.1:8849", None),
            ("[::1]:65535", "[::1]:65535", None),
            ("a,b:1,[::1]/n", "a:8848,b:1,[::1]:8848", None),
            ("me@a,b", "a:8848,b:8848", Some("me")),
            ("m%40e@a", "a:8848", Some("m@e")),
        ] {
            let url = parsed(text).unwrap();
            let found = (url.servers.join(","), url.user);
            assert_eq!(found, (servers.to_owned(), user.map(str::to_owned)));
        }
    }

    #[test]
    fn what_is_no_url_gives_the_reason() {
        let parameter = |name: &str| InvalidRegistryUrl::Parameter(name.to_owned());
        for (text, why) in [
            ("", InvalidRegistryUrl::Malformed),
            (",", InvalidRegistryUrl::Malformed),
            ("a,", InvalidRegistryUrl::Malformed),
            ("a:", InvalidRegistryUrl::Malformed),
            ("a:x", InvalidRegistryUrl::Malformed),
            ("a:99999", InvalidRegistryUrl::Malformed),
            ("a b", InvalidRegistryUrl::Malformed),
            ("::1", InvalidRegistryUrl::Malformed),
            ("@a", InvalidRegistryUrl::Malformed),
            ("a#b", InvalidRegistryUrl::Malformed),
            ("a:0", InvalidRegistryUrl::Port),
            ("me:hush@a", InvalidRegistryUrl::Password),
            (":hu@sh@a", InvalidRegistryUrl::Password),
            ("me:hu/sh@a", InvalidRegistryUrl::Encoding),
            ("me:hu?sh@a", InvalidRegistryUrl::Encoding),
            ("m%ze@a", InvalidRegistryUrl::Encoding),
            ("me%4@a", InvalidRegistryUrl::Encoding),
            ("me%ff@a", InvalidRegistryUrl::Encoding),
            ("a/?group=b@c", InvalidRegistryUrl::Encoding),
            ("a?group=b%0Ac", InvalidRegistryUrl::Encoding),
            ("a?group=b%20c", InvalidRegistryUrl::Encoding),
            ("a/?x=y", parameter("x")),
            ("a/?x=", parameter("x")),
            ("a/?x=1&x=2", parameter("x")),
        ] {
            assert_eq!(parsed(text).unwrap_err(), why, "{text}");
        }
        for text in ["a", "nacos:a", "http://a", "nacos+http://a"] {
            let error = RegistryUrl::parse(text).unwrap_err();
            assert_eq!(error, InvalidRegistryUrl::Malformed, "{text}");
        }
    }
}
