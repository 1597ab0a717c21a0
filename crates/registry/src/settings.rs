//! The settings of the registry: a URL.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use http::uri::Authority;
use percent_encoding::percent_decode_str;
use postern_http::host::loopback::is_loopback_host;
use postern_process::exit::ExitError;
use postern_process::files::secret_file;
use postern_transport::http_client::Url;
use postern_transport::tls::trusted;
use secrecy::SecretString;

/// The default port of Nacos, with and without TLS.
const DEFAULT_PORT: u16 = 8848;
/// The default group of Nacos.
const DEFAULT_GROUP: &str = "DEFAULT_GROUP";
/// The service name of contract §1.
const DEFAULT_SERVICE: &str = "auth";

/// The address of a registry, our credentials at the registry, and the name of the service.
#[derive(Debug, Clone)]
pub struct RegistrySettings {
    pub(crate) is_https: bool,
    /// `host:port`.
    pub(crate) server: Authority,
    user: Option<String>,
    password_file: Option<PathBuf>,
    /// The password, read from its file by [`RegistrySettings::configured`].
    password: Option<SecretString>,
    /// The namespace; empty for the public namespace.
    pub(crate) namespace: String,
    pub(crate) group: String,
    pub(crate) service: String,
    /// The file of the authorities trusted for https instead of the system's; read again after a failure.
    pub(crate) ca: Option<PathBuf>,
}

/// The part of a sidecar's URL about the instances that the registry lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instances {
    /// True for https.
    pub are_secure: bool,
    /// The name in the certificate of every instance; `None`: the registered address.
    pub server_name: Option<String>,
    /// The path of the URL, which is the context path of every instance.
    pub context: String,
}

/// URL parse error. The texts do not repeat the URL, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRegistryUrl {
    /// A URL of another form.
    #[error("expected nacos://[USER@]HOST[:PORT]/…, also with nacos+https")]
    Malformed,
    /// A password in the URL.
    #[error("no password is allowed here: name its file, ?password-file=FILE")]
    Password,
    /// A user without a password file, or a password file without a user.
    #[error("a user needs password-file=FILE among the parameters, and the file a user")]
    HalfOfCredentials,
    /// A parameter that does not exist, is given twice, or has an unusable value or no effect.
    #[error("the parameter '{0}' is unknown, given twice, unusable or without effect here")]
    Parameter(String),
}

/// The parameters of a URL; each reader removes the parameters that it knows.
type Parameters = BTreeMap<String, String>;

impl RegistrySettings {
    /// Parses the registry of a server: `nacos[+https]://HOST[/NAMESPACE][?group=…&service=…&ca=FILE]`.
    ///
    /// # Errors
    /// [`InvalidRegistryUrl`]
    pub fn for_server(url: &str) -> Result<Self, InvalidRegistryUrl> {
        let (mut settings, path, parameters) = parts(url)?;
        // A server's path is the namespace alone.
        if path.contains('/') {
            return Err(InvalidRegistryUrl::Malformed);
        }
        settings.namespace = path;
        settings.with_parameters(parameters)
    }

    /// Parses the registry of a client: `nacos[+https]://HOST/CONTEXT[?namespace=…]`. With `+https`
    /// the instances and the registry are reached by https, the latter unless `registry-tls=off`.
    ///
    /// # Errors
    /// [`InvalidRegistryUrl`]
    pub fn for_client(url: &str) -> Result<(Self, Instances), InvalidRegistryUrl> {
        let (mut settings, path, mut parameters) = parts(url)?;
        let are_secure = settings.is_https;
        // The registry may speak plain HTTP although the instances speak https.
        settings.is_https = match parameters.remove("registry-tls").as_deref() {
            None => are_secure,
            Some("on") => true,
            Some("off") => false,
            Some(_) => return Err(unusable("registry-tls")),
        };
        settings.namespace = parameters.remove("namespace").unwrap_or_default();
        let server_name = parameters.remove("server-name");
        match &server_name {
            Some(name) if !are_secure || !is_host(name) => return Err(unusable("server-name")),
            _ => {}
        }
        let instances = Instances {
            are_secure,
            server_name,
            context: match path.as_str() {
                "" => path,
                path => format!("/{path}"),
            },
        };
        Ok((settings.with_parameters(parameters)?, instances))
    }

    fn with_parameters(mut self, mut parameters: Parameters) -> Result<Self, InvalidRegistryUrl> {
        if let Some(group) = parameters.remove("group") {
            self.group = group;
        }
        if let Some(service) = parameters.remove("service") {
            self.service = service;
        }
        self.password_file = parameters.remove("password-file").map(PathBuf::from);
        // One half of the credentials alone would be a login that always fails, or none.
        if self.user.is_some() != self.password_file.is_some() {
            return Err(InvalidRegistryUrl::HalfOfCredentials);
        }
        // Without https `ca` has no effect: it stays in the parameters, and is rejected as unknown.
        if self.is_https {
            self.ca = parameters.remove("ca").map(PathBuf::from);
        }
        // Every known parameter has been removed by now.
        match parameters.keys().next() {
            None => Ok(self),
            Some(unknown) => Err(unusable(unknown)),
        }
    }

    /// Reads the password, and checks the file of authorities. `flag` holds the URL.
    ///
    /// # Errors
    /// [`ExitError::Config`], one line that names the flag and repeats no password.
    pub fn configured(self, flag: &str) -> Result<Self, ExitError> {
        let rejected = |error: &dyn fmt::Display| ExitError::Config(format!("{flag}: {error}"));
        let password = match &self.password_file {
            Some(file) => {
                let text = secret_file::read(file).map_err(|error| rejected(&error))?;
                Some(SecretString::from(text.as_str()))
            }
            None => None,
        };
        if let Some(ca) = &self.ca {
            trusted(ca).map_err(|error| rejected(&error))?;
        }
        Ok(Self { password, ..self })
    }

    /// Returns true if the password is sent without TLS, so that it could be read on the network.
    #[must_use]
    pub fn shows_password(&self) -> bool {
        self.password.is_some() && !self.is_https && !is_loopback_host(self.server.host())
    }

    /// Returns user and password.
    pub(crate) fn credentials(&self) -> Option<(&str, &SecretString)> {
        Some((self.user.as_deref()?, self.password.as_ref()?))
    }

    /// Returns the auth server's name in the registry.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }
}

/// Returns the settings that are neither in the path nor in the parameters, with the path and the
/// parameters; the path is decoded and has no slashes around it.
fn parts(url: &str) -> Result<(RegistrySettings, String, Parameters), InvalidRegistryUrl> {
    let url: Url = url.parse().map_err(|_| InvalidRegistryUrl::Malformed)?;
    let is_https = match url.scheme() {
        "nacos" => false,
        "nacos+https" => true,
        _ => return Err(InvalidRegistryUrl::Malformed),
    };
    if url.password().is_some() {
        return Err(InvalidRegistryUrl::Password);
    }
    let port = url.port().unwrap_or(DEFAULT_PORT);
    let host = url.host_str().unwrap_or_default();
    // Other clients of Nacos take a list of hosts.
    if host.is_empty() || host.contains(',') || port == 0 || url.fragment().is_some() {
        return Err(InvalidRegistryUrl::Malformed);
    }
    let Ok(server) = format!("{host}:{port}").parse() else {
        return Err(InvalidRegistryUrl::Malformed);
    };
    let mut parameters = Parameters::new();
    for (name, value) in url.query_pairs() {
        // A name without a value may be a password.
        let name = if value.is_empty() {
            "…".to_owned()
        } else {
            name.into_owned()
        };
        if !is_name(&value) || parameters.contains_key(&name) {
            return Err(InvalidRegistryUrl::Parameter(name));
        }
        parameters.insert(name, value.into_owned());
    }
    let user = decode(url.username())?;
    let settings = RegistrySettings {
        is_https,
        server,
        user: if user.is_empty() { None } else { Some(user) },
        password_file: None,
        password: None,
        namespace: String::new(),
        group: DEFAULT_GROUP.to_owned(),
        service: DEFAULT_SERVICE.to_owned(),
        ca: None,
    };
    Ok((settings, decode(url.path().trim_matches('/'))?, parameters))
}

/// Prints the server alone.
impl fmt::Display for RegistrySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}

fn decode(text: &str) -> Result<String, InvalidRegistryUrl> {
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) if text.is_empty() || is_name(&decoded) => Ok(decoded.into_owned()),
        _ => Err(InvalidRegistryUrl::Malformed),
    }
}

/// Returns true for a text without blanks and without bytes that are not UTF-8.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(is_no_part)
}

fn is_no_part(c: char) -> bool {
    c.is_control() || c.is_whitespace() || c == '\u{fffd}'
}

/// Returns true for a host as a certificate names it.
fn is_host(text: &str) -> bool {
    match text.parse::<Authority>() {
        Ok(authority) => authority.host() == text,
        Err(_) => false,
    }
}

fn unusable(parameter: &str) -> InvalidRegistryUrl {
    InvalidRegistryUrl::Parameter(parameter.to_owned())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn names(settings: &RegistrySettings) -> [&str; 3] {
        [&settings.namespace, &settings.group, &settings.service]
    }

    #[test]
    fn a_url_names_a_server_and_perhaps_a_user() {
        for (text, server, user) in [
            ("nacos", "nacos:8848", None),
            ("10.0.0.1:8849", "10.0.0.1:8849", None),
            ("[::1]:65535/n", "[::1]:65535", None),
            ("me@a?password-file=f", "a:8848", Some("me")),
            ("m%40e@a?password-file=f", "a:8848", Some("m@e")),
        ] {
            let settings = RegistrySettings::for_server(&format!("nacos://{text}")).unwrap();
            assert_eq!(settings.to_string(), server);
            assert_eq!(settings.user.as_deref(), user);
        }
    }

    #[test]
    fn a_server_s_path_is_its_namespace() {
        for (url, expected) in [
            ("nacos://a", ["", "DEFAULT_GROUP", "auth"]),
            ("nacos://a/", ["", "DEFAULT_GROUP", "auth"]),
            ("nacos://a/n%26s/?group=G", ["n&s", "G", "auth"]),
            ("nacos+https://a?service=s&group=G%26", ["", "G&", "s"]),
        ] {
            let settings = RegistrySettings::for_server(url).unwrap();
            assert_eq!(names(&settings), expected, "{url}");
            assert_eq!(settings.is_https, url.starts_with("nacos+https"));
        }
    }

    #[test]
    fn a_client_s_path_is_the_context() {
        let url = "nacos+https://a/auth?namespace=n&group=G&service=s&server-name=auth.internal";
        let (settings, instances) = RegistrySettings::for_client(url).unwrap();
        assert_eq!(names(&settings), ["n", "G", "s"]);
        assert_eq!(instances.context, "/auth");
        assert_eq!(instances.server_name.as_deref(), Some("auth.internal"));
        for (url, are_secure, is_https) in [
            ("nacos://a/auth", false, false),
            ("nacos+https://a/auth", true, true),
            ("nacos+https://a/auth?registry-tls=off", true, false),
            ("nacos://a/auth?registry-tls=on", false, true),
        ] {
            let (settings, instances) = RegistrySettings::for_client(url).unwrap();
            let found = (instances.are_secure, settings.is_https);
            assert_eq!(found, (are_secure, is_https), "{url}");
        }
    }

    #[test]
    fn what_is_no_url_or_has_no_effect_is_rejected() {
        use InvalidRegistryUrl::{HalfOfCredentials, Malformed, Password};
        for (url, why) in [
            ("a", Malformed),
            ("nacos:a", Malformed),
            ("http://a", Malformed),
            ("nacos+http://a", Malformed),
            ("nacos://", Malformed),
            ("nacos:///n", Malformed),
            ("nacos://a:x", Malformed),
            ("nacos://a:0", Malformed),
            ("nacos://a:99999", Malformed),
            ("nacos://a,b", Malformed),
            ("nacos://a b", Malformed),
            ("nacos://::1", Malformed),
            ("nacos://a#b", Malformed),
            ("nacos://a/n/m", Malformed),
            ("nacos://a/n%0Am", Malformed),
            ("nacos://m%ffe@a", Malformed),
            ("nacos://me:hu/sh@a", Malformed),
            ("nacos://me:hush@a", Password),
            ("nacos://:hu@sh@a", Password),
            ("nacos://me@a", HalfOfCredentials),
            ("nacos://a?password-file=f", HalfOfCredentials),
            ("nacos://a?group=", unusable("…")),
            ("nacos://a?hush", unusable("…")),
            ("nacos://a?group=b%20c", unusable("group")),
            ("nacos://a?group=b%ff", unusable("group")),
            ("nacos://a?group=b&group=c", unusable("group")),
            ("nacos://a?namespace=n", unusable("namespace")),
            ("nacos://a?server-name=n", unusable("server-name")),
            ("nacos://a?ca=f", unusable("ca")),
        ] {
            assert_eq!(RegistrySettings::for_server(url).unwrap_err(), why, "{url}");
        }
    }

    #[test]
    fn a_password_is_readable_on_its_way_without_tls() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        ::tests::wire::certificates::write_private(&file, "hush");
        for (url, expected) in [
            ("nacos://me@a", true),
            ("nacos://me@localhost:1", false),
            ("nacos://me@[::1]", false),
            ("nacos+https://me@a", false),
        ] {
            let url = format!("{url}?password-file={}", file.display());
            let settings = RegistrySettings::for_server(&url).unwrap();
            let settings = settings.configured("--registry").unwrap();
            assert!(!format!("{settings:?}").contains("hush"));
            assert_eq!(settings.shows_password(), expected, "{url}");
        }
    }
}
