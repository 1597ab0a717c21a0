//! The settings of the registry: a URL, and a password.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use http::uri::Authority;
use runtime::files::secret_file;
use runtime::net::host_port::host_and_port;
use runtime::net::loopback::is_loopback_host;
use runtime::process::exit::ExitError;
use runtime::tls::trusted;
use secrecy::SecretString;
use serde::Serialize;

use crate::url::{InvalidRegistryUrl, RegistryUrl, decoded};

/// The default of Nacos.
const DEFAULT_GROUP: &str = "DEFAULT_GROUP";
/// Contract §1.
const DEFAULT_SERVICE: &str = "auth";

/// The settings that are no part of the URL. Serialised, they are part of a configuration file.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RegistryArgs {
    /// Password of the registry's user
    #[arg(
        long,
        env,
        hide_env_values = true,
        allow_hyphen_values = true,
        conflicts_with = "registry_password_file",
        value_name = "PASSWORD"
    )]
    #[serde(skip)]
    pub registry_password: Option<SecretString>,
    /// File holding the password of the registry's user
    #[arg(long, env, value_name = "FILE")]
    pub registry_password_file: Option<PathBuf>,
}

/// The servers of one registry, our credentials there, and the name of the service.
#[derive(Debug, Clone)]
pub struct RegistrySettings {
    pub(crate) is_https: bool,
    /// `host:port` each, at least one.
    pub(crate) servers: Vec<String>,
    user: Option<String>,
    password: Option<SecretString>,
    /// Empty: public.
    pub(crate) namespace: String,
    pub(crate) group: String,
    pub(crate) service: String,
    /// Trusted with https in place of the system's authorities; read again after a failure.
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

impl RegistrySettings {
    /// Parses the registry of a server: `nacos[+https]://HOST[/NAMESPACE][?group=…&service=…&ca=FILE]`.
    ///
    /// # Errors
    /// [`InvalidRegistryUrl`]
    pub fn of_server(url: &str) -> Result<Self, InvalidRegistryUrl> {
        let url = RegistryUrl::parse(url)?;
        let namespace = url.path.trim_matches('/');
        if namespace.contains('/') {
            return Err(InvalidRegistryUrl::Malformed);
        }
        let namespace = decoded(namespace)?;
        Self::in_namespace(namespace, url)
    }

    /// Parses the registry of a client: `nacos[+https]://HOST/CONTEXT[?namespace=…]`. With `+https`
    /// the instances and the registry are reached by https, the latter unless `registry-tls=off`.
    ///
    /// # Errors
    /// [`InvalidRegistryUrl`]
    pub fn of_client(url: &str) -> Result<(Self, Instances), InvalidRegistryUrl> {
        let mut url = RegistryUrl::parse(url)?;
        let are_secure = url.is_https;
        url.is_https = match url.take("registry-tls").as_deref() {
            None => are_secure,
            Some("on") => true,
            Some("off") => false,
            Some(_) => return Err(InvalidRegistryUrl::Parameter("registry-tls".to_owned())),
        };
        let server_name = url.take_with_https("server-name", are_secure)?;
        if server_name.as_deref().is_some_and(|name| !is_host(name)) {
            return Err(InvalidRegistryUrl::Parameter("server-name".to_owned()));
        }
        let instances = Instances {
            are_secure,
            server_name,
            context: std::mem::take(&mut url.path),
        };
        let namespace = url.take("namespace").unwrap_or_default();
        Ok((Self::in_namespace(namespace, url)?, instances))
    }

    fn in_namespace(namespace: String, mut url: RegistryUrl) -> Result<Self, InvalidRegistryUrl> {
        let mut parameter =
            |name, default: &str| url.take(name).unwrap_or_else(|| default.to_owned());
        let (group, service) = (
            parameter("group", DEFAULT_GROUP),
            parameter("service", DEFAULT_SERVICE),
        );
        let ca = url.take_with_https("ca", url.is_https)?.map(PathBuf::from);
        url.finished()?;
        Ok(Self {
            is_https: url.is_https,
            servers: url.servers,
            user: url.user,
            password: None,
            namespace,
            group,
            service,
            ca,
        })
    }

    /// Adds the password, and checks the file of authorities. `flag` holds the URL.
    ///
    /// # Errors
    /// [`ExitError::Config`], one line that names the flag and repeats no password.
    pub fn configured(self, args: &RegistryArgs, flag: &str) -> Result<Self, ExitError> {
        let rejected =
            |flag: &str, error: &dyn fmt::Display| ExitError::Config(format!("{flag}: {error}"));
        let of_file = args
            .registry_password_file
            .as_deref()
            .map(secret_file::read);
        let of_file = of_file
            .transpose()
            .map_err(|error| rejected("--registry-password-file", &error))?;
        let password = args
            .registry_password
            .clone()
            .or_else(|| of_file.map(|text| SecretString::from(text.as_str())));
        if self.user.is_some() != password.is_some() {
            return Err(rejected(flag, &InvalidRegistryUrl::HalfOfCredentials));
        }
        if let Some(ca) = &self.ca {
            trusted(ca).map_err(|error| rejected(flag, &error))?;
        }
        Ok(Self { password, ..self })
    }

    /// Returns true if the password could be read on its way.
    #[must_use]
    pub fn shows_password(&self) -> bool {
        let is_loopback =
            |server: &String| host_and_port(server).is_some_and(|(host, _)| is_loopback_host(host));
        self.password.is_some() && !self.is_https && !self.servers.iter().all(is_loopback)
    }

    /// Returns user and password.
    pub(crate) fn credentials(&self) -> Option<(&str, &SecretString)> {
        Some((self.user.as_deref()?, self.password.as_ref()?))
    }

    /// Returns the auth server's name there.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }
}

/// Prints the servers alone.
impl fmt::Display for RegistrySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.servers.join(","))
    }
}

/// Returns true for a host as a certificate names it.
fn is_host(text: &str) -> bool {
    let authority = text.parse::<Authority>();
    authority.is_ok_and(|authority| authority.host() == text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn names(settings: &RegistrySettings) -> [&str; 3] {
        [&settings.namespace, &settings.group, &settings.service]
    }

    #[test]
    fn a_server_s_path_is_its_namespace() {
        for (url, expected) in [
            ("nacos://a", ["", "DEFAULT_GROUP", "auth"]),
            ("nacos://a/", ["", "DEFAULT_GROUP", "auth"]),
            ("nacos://a/n%2Fs/?group=G", ["n/s", "G", "auth"]),
            ("nacos+https://a?service=s&group=G%26", ["", "G&", "s"]),
        ] {
            let settings = RegistrySettings::of_server(url).unwrap();
            assert_eq!(names(&settings), expected, "{url}");
            assert_eq!(settings.is_https, url.starts_with("nacos+https"));
        }
    }

    #[test]
    fn a_client_s_path_is_the_context() {
        let url = "nacos+https://a/auth?namespace=n&group=G&service=s&server-name=auth.internal";
        let (settings, instances) = RegistrySettings::of_client(url).unwrap();
        assert_eq!(names(&settings), ["n", "G", "s"]);
        assert_eq!(instances.context, "/auth");
        assert_eq!(instances.server_name.as_deref(), Some("auth.internal"));
        for (url, are_secure, is_https) in [
            ("nacos://a/auth", false, false),
            ("nacos+https://a/auth", true, true),
            ("nacos+https://a/auth?registry-tls=off", true, false),
            ("nacos://a/auth?registry-tls=on", false, true),
        ] {
            let (settings, instances) = RegistrySettings::of_client(url).unwrap();
            let found = (instances.are_secure, settings.is_https);
            assert_eq!(found, (are_secure, is_https), "{url}");
        }
    }

    #[test]
    fn what_has_no_effect_is_rejected() {
        let parameter = |name: &str| InvalidRegistryUrl::Parameter(name.to_owned());
        for (url, why) in [
            ("nacos://a/n/m", InvalidRegistryUrl::Malformed),
            ("nacos://a?namespace=n", parameter("namespace")),
            ("nacos://a?server-name=n", parameter("server-name")),
            ("nacos://a?ca=f", InvalidRegistryUrl::NeedsHttps("ca")),
        ] {
            assert_eq!(RegistrySettings::of_server(url).unwrap_err(), why, "{url}");
        }
        let of_names = InvalidRegistryUrl::NeedsHttps("server-name");
        for (url, why) in [
            ("nacos://a/auth?server-name=n", of_names),
            (
                "nacos+https://a/auth?server-name=n:1",
                parameter("server-name"),
            ),
            (
                "nacos+https://a/?registry-tls=off&ca=f",
                InvalidRegistryUrl::NeedsHttps("ca"),
            ),
            ("nacos://a/auth?registry-tls=yes", parameter("registry-tls")),
            ("nacos://a/auth?grop=G", parameter("grop")),
        ] {
            assert_eq!(RegistrySettings::of_client(url).unwrap_err(), why, "{url}");
        }
    }

    #[test]
    fn a_password_needs_a_user_and_is_readable_without_tls() {
        for (url, password, expected) in [
            ("nacos://a", None, Some(false)),
            ("nacos://a", Some("hush"), None),
            ("nacos://me@a", None, None),
            ("nacos://me@a", Some("hush"), Some(true)),
            ("nacos://me@127.0.0.1,10.0.0.1", Some("hush"), Some(true)),
            ("nacos://me@localhost:1,[::1]", Some("hush"), Some(false)),
            ("nacos+https://me@a", Some("hush"), Some(false)),
        ] {
            let args = RegistryArgs {
                registry_password: password.map(Into::into),
                registry_password_file: None,
            };
            let settings = RegistrySettings::of_server(url).unwrap();
            let settings = settings.configured(&args, "--registry");
            assert!(!format!("{settings:?}").contains("hush"));
            let is_readable = settings.map(|settings| settings.shows_password()).ok();
            assert_eq!(is_readable, expected, "{url}");
        }
    }
}
