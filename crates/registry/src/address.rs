//! The address of the registry: `[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…]`, the part between
//! `nacos://` and the path.

use std::fmt;

use percent_encoding::percent_decode_str;
use runtime::net::host_port::host_and_port;
use runtime::net::loopback::is_loopback_host;
use zeroize::Zeroizing;

/// The default of Nacos; its gRPC port is a thousand above.
const DEFAULT_PORT: u16 = 8848;
/// Leaves room for the gRPC port.
const LARGEST_PORT: u16 = u16::MAX - 1000;

/// The servers of one registry, and our credentials there.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryAddress {
    /// `host:port` each, at least one.
    servers: Vec<Server>,
    user: Option<String>,
    password: Option<Zeroizing<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Server {
    host: String,
    port: u16,
}

/// Address parse error. The texts do not repeat the address: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// An address of another form.
    #[error("expected nacos://[USER@]HOST[:PORT][,HOST[:PORT]…]")]
    Malformed,
    /// A port without room for the gRPC port.
    #[error("a port is 1 to {LARGEST_PORT}: the registry's gRPC port is 1000 above its HTTP port")]
    Port,
    /// A `%` without two hex digits, or bytes that are not text.
    #[error("user and password have to be percent-encoded")]
    Credentials,
    /// A user without a password, or a password without a user.
    #[error("a user needs a password, and a password a user")]
    HalfOfCredentials,
    /// Two passwords: in the address and in a file.
    #[error("the password is given twice: in the address and in a file")]
    TwoPasswords,
}

impl RegistryAddress {
    /// Parses the text after `nacos://`, without a path.
    ///
    /// # Errors
    /// [`InvalidAddress`]
    pub fn parse(text: &str) -> Result<Self, InvalidAddress> {
        // A password that holds an unescaped `@` ends at the last one.
        let (credentials, servers) = match text.rsplit_once('@') {
            Some((credentials, servers)) => (Some(credentials), servers),
            None => (None, text),
        };
        let (user, password) = match credentials
            .map(|text| text.split_once(':').unwrap_or((text, "")))
        {
            None => (None, None),
            Some(("", _)) => return Err(InvalidAddress::HalfOfCredentials),
            Some((user, "")) => (Some(decoded(user)?.to_string()), None),
            Some((user, password)) => (Some(decoded(user)?.to_string()), Some(decoded(password)?)),
        };
        let servers = servers.split(',').map(server).collect::<Result<_, _>>()?;
        Ok(Self {
            servers,
            user,
            password,
        })
    }

    /// Adds the password from a file.
    ///
    /// # Errors
    /// [`InvalidAddress`] for two passwords, and for a password or a user without the other.
    pub fn with_password(
        mut self,
        password: Option<Zeroizing<String>>,
    ) -> Result<Self, InvalidAddress> {
        if self.password.is_some() && password.is_some() {
            return Err(InvalidAddress::TwoPasswords);
        }
        self.password = self.password.or(password);
        if self.user.is_some() != self.password.is_some() {
            return Err(InvalidAddress::HalfOfCredentials);
        }
        Ok(self)
    }

    /// Returns true if requests to it stay on this host.
    #[must_use]
    pub fn is_on_loopback(&self) -> bool {
        let mut servers = self.servers.iter();
        servers.all(|server| is_loopback_host(&server.host))
    }

    /// Returns true if there is a password to send.
    #[must_use]
    pub fn has_credentials(&self) -> bool {
        self.password.is_some()
    }

    /// Returns user and password.
    #[must_use]
    pub fn credentials(&self) -> Option<(&str, &str)> {
        Some((self.user.as_deref()?, self.password.as_deref()?))
    }

    /// Returns `host:port` of each server.
    #[must_use]
    pub fn servers(&self) -> Vec<String> {
        self.servers.iter().map(Server::to_string).collect()
    }
}

fn server(text: &str) -> Result<Server, InvalidAddress> {
    let (host, port) = host_and_port(text).ok_or(InvalidAddress::Malformed)?;
    let port = port.unwrap_or(DEFAULT_PORT);
    if !(1..=LARGEST_PORT).contains(&port) {
        return Err(InvalidAddress::Port);
    }
    Ok(Server {
        host: host.to_owned(),
        port,
    })
}

fn decoded(text: &str) -> Result<Zeroizing<String>, InvalidAddress> {
    let escapes_nothing = |(at, _): (usize, &str)| {
        let digits = text.as_bytes().get(at + 1..at + 3);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if text.match_indices('%').any(escapes_nothing) {
        return Err(InvalidAddress::Credentials);
    }
    percent_decode_str(text)
        .decode_utf8()
        .map(|text| Zeroizing::new(text.into_owned()))
        .map_err(|_| InvalidAddress::Credentials)
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Prints no user and no password.
impl fmt::Display for RegistryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.servers().join(","))
    }
}

impl fmt::Debug for RegistryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegistryAddress({self})")
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn an_address_names_servers_and_is_printed_without_password() {
        for (text, expected, credentials) in [
            ("nacos", "nacos:8848", None),
            ("10.0.0.1:8849", "10.0.0.1:8849", None),
            ("[::1]:9", "[::1]:9", None),
            ("a,b:1,[::1]", "a:8848,b:1,[::1]:8848", None),
            ("me:hush@a,b", "a:8848,b:8848", Some(("me", "hush"))),
            ("m%40e:h%3Ash@a", "a:8848", Some(("m@e", "h:sh"))),
            ("me:hu@sh@a", "a:8848", Some(("me", "hu@sh"))),
        ] {
            let address = RegistryAddress::parse(text).unwrap();
            assert_eq!(address.to_string(), expected);
            assert_eq!(address.credentials(), credentials, "{text}");
            assert!(!format!("{address:?}").contains("hush"));
        }
    }

    #[test]
    fn what_is_no_address_gives_the_reason() {
        for (text, why) in [
            ("", InvalidAddress::Malformed),
            (",", InvalidAddress::Malformed),
            ("a,", InvalidAddress::Malformed),
            ("a:", InvalidAddress::Malformed),
            ("a:x", InvalidAddress::Malformed),
            ("a:99999", InvalidAddress::Malformed),
            ("a b", InvalidAddress::Malformed),
            ("a/b", InvalidAddress::Malformed),
            ("::1", InvalidAddress::Malformed),
            ("a:0", InvalidAddress::Port),
            ("a:64536", InvalidAddress::Port),
            ("@a", InvalidAddress::HalfOfCredentials),
            (":hush@a", InvalidAddress::HalfOfCredentials),
            ("me:%zz@a", InvalidAddress::Credentials),
            ("me:%4@a", InvalidAddress::Credentials),
            ("me:%ff@a", InvalidAddress::Credentials),
        ] {
            assert_eq!(RegistryAddress::parse(text).unwrap_err(), why, "{text}");
        }
    }

    #[test]
    fn user_and_password_come_together_and_once() {
        let with = |text: &str, password: Option<&str>| {
            let password = password.map(|text| Zeroizing::new(text.to_owned()));
            RegistryAddress::parse(text)
                .and_then(|address| address.with_password(password))
                .map(|address| address.has_credentials())
        };
        assert_eq!(with("a", None), Ok(false));
        assert_eq!(with("me@a", Some("hush")), Ok(true));
        assert_eq!(with("me:hush@a", None), Ok(true));
        assert_eq!(with("me@a", None), Err(InvalidAddress::HalfOfCredentials));
        assert_eq!(with("a", Some("x")), Err(InvalidAddress::HalfOfCredentials));
        assert_eq!(
            with("me:hush@a", Some("x")),
            Err(InvalidAddress::TwoPasswords)
        );
    }

    #[test]
    fn loopback_is_known() {
        for (text, on_loopback) in [
            ("127.0.0.1", true),
            ("localhost:1,[::1]", true),
            ("127.0.0.1,10.0.0.1", false),
            ("nacos", false),
        ] {
            let address = RegistryAddress::parse(text).unwrap();
            assert_eq!(address.is_on_loopback(), on_loopback, "{text}");
        }
    }
}
