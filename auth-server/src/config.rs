//! The validated settings of `serve`.

mod logouts;
pub(crate) mod registry;
mod rotation;
mod store;
mod warnings;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postern_contract::interceptor::Interceptor;
use postern_http::cors::AllowedOrigins;
use postern_http::host::loopback::is_loopback;
use postern_http::host::server_url::ServerUrl;
use postern_http::path::patterns::{ContextPath, PassList};
use postern_process::command_line::serialize::redact_urls;
use postern_process::exit::ExitError;
use postern_process::logs::access_log::AccessLog;
use postern_token::keys::signing_type::SigningType;
use postern_token::policy::{Audience, RequiredIssuer, VerificationPolicy};
use postern_transport::net::client_address::TrustedProxies;
use postern_transport::tls::{HTTP_1, RequestedCertificates, ServerTls};
use toml::Table;

use self::registry::RegistryConfig;
pub(crate) use self::store::store_location;
pub(crate) use self::warnings::warnings;
use crate::accounts::applications::directory::MountedApplications;
use crate::accounts::applications::registry::ApplicationRegistry;
use crate::accounts::sessions::SessionSettings;
use crate::accounts::users::builtin::BuiltinUser;
use crate::accounts::users::file::FileUsers;
use crate::accounts::users::{UserStore, UsersLocation};
use crate::cli::ServeArgs;
use crate::keys::ring::rotation::RotationPolicy;
use crate::revocations::foreign::ForeignIssuer;
use crate::store::location::StoreLocation;
use crate::tokens::issuer::TokenIssuer;

/// Paths of the auth server without a token (contract §4.4). The key endpoint is exempt by route.
const PASS_LIST: [&str; 3] = ["/oauth/jwt/**", "/static/**", "/assets/**"];
/// Max length of a field that is parsed for a token; far above our own tokens.
pub(crate) const MAX_AUTHORIZATION_BYTES: usize = 8 * 1024;

/// The directories below `--static-dir` that are served below the context path.
pub(crate) const TREES: [&str; 2] = ["static", "assets"];
/// Cache lifetime of the JWK Set: a revoked key disappears and a new key appears this much later. It is short
/// for revoked keys; for new keys it is a part of the rotation lead.
pub(crate) const MAX_AGE_SECONDS: i64 = 15;

/// Leeway between servers of one store: they share its clock, which each measures with an error.
const LEEWAY_SECONDS: u32 = 5;

/// Default per address with password checks: enough for an office behind one address, too few to
/// try one password on many accounts.
const LOGINS_PER_MINUTE: u32 = 300;
/// Default number of sessions of one user: several devices, each with a login a day for weeks.
const SESSIONS_PER_USER: u32 = 100;

/// The settings of `serve`, without addresses.
pub(crate) struct Config {
    /// The TLS settings; `None` for plain HTTP.
    pub(crate) tls: Option<Arc<ServerTls>>,
    /// True if certificates of clients are requested, to which their tokens are bound.
    pub(crate) binds_to_certificates: bool,
    pub(crate) context_path: ContextPath,
    pub(crate) store: StoreLocation,
    pub(crate) store_poll_interval: Duration,
    pub(crate) rotation: RotationPolicy,
    pub(crate) signing_type: SigningType,
    pub(crate) issuer: TokenIssuer,
    /// The issuer, if keys can be discovered there: it is a URL, and the keys are public.
    pub(crate) issuer_url: Option<ServerUrl>,
    pub(crate) interceptor: Interceptor,
    pub(crate) policy: VerificationPolicy,
    /// True if logins begin sessions here; sessions of other servers on the store are ended in any case.
    pub(crate) refresh_tokens: bool,
    /// Seconds from a login to the end of its session.
    pub(crate) session_lifetime: u32,
    /// Max number of sessions of one user; 0 for any number.
    pub(crate) sessions_per_user: u32,
    pub(crate) static_root: Option<PathBuf>,
    pub(crate) request_timeout: Duration,
    pub(crate) max_connections: u32,
    /// `--users`, or its default.
    pub(crate) users_location: UsersLocation,
    /// Loaded users of a file; `None` for the built-in user.
    pub(crate) users: Option<Arc<FileUsers>>,
    /// The issuers of `[[logout]]` tables.
    pub(crate) foreign_issuers: Vec<ForeignIssuer>,
    /// `None` if only the store holds applications.
    pub(crate) mounted_applications: Option<MountedApplications>,
    /// Logins a minute from one address; 0 for any number.
    pub(crate) login_rate_limit: u32,
    pub(crate) trusted_proxies: TrustedProxies,
    /// `None` if this server is not registered.
    pub(crate) registry: Option<RegistryConfig>,
    pub(crate) access_log: AccessLog,
    /// True for `dev`: tokens with any claims are signed.
    pub(crate) any_claims: bool,
}

impl Config {
    /// Validates the flags.
    ///
    /// # Errors
    /// [`ExitError::Config`], one line that names the flag.
    pub(crate) fn from_args(args: &ServeArgs) -> Result<Self, ExitError> {
        postern_transport::net::listener::require_two(
            args.listening.listen,
            args.listening.admin_listen,
        )?;
        let context_path = args.listening.context_path.clone();
        let signing_type = args.keys.signing.signing_type;
        let users_location = users_location(args)?;
        // With builtin users any password logs in: there is no guessing to limit.
        let (max_sessions, max_logins) = match users_location {
            UsersLocation::Builtin => (0, 0),
            UsersLocation::File(_) => (SESSIONS_PER_USER, LOGINS_PER_MINUTE),
        };
        let clients = RequestedCertificates {
            mode: args.listening.client_cert.client_cert,
            ca: None,
        };
        Ok(Self {
            issuer_url: issuer_url(&args.tokens.issuer)
                // With HMAC there is no public key that a discovery document could lead to.
                .filter(|_| signing_type != SigningType::Hmac),
            binds_to_certificates: clients.mode.is_some(),
            tls: args.listening.tls.server(clients, HTTP_1)?,
            interceptor: Interceptor::new(
                context_path.clone(),
                pass_list(args)?,
                MAX_AUTHORIZATION_BYTES,
            )
            .with_allowed_origins(AllowedOrigins::new(args.pages.cors_origin.clone())),
            access_log: args.access_log,
            any_claims: false,
            context_path,
            store: store_location(&args.keys.store)?,
            store_poll_interval: args.keys.store_poll_interval.duration(),
            rotation: rotation::policy(args)?,
            signing_type,
            issuer: TokenIssuer {
                issuer: args.tokens.issuer.clone(),
                audience: args.tokens.audience.clone(),
                lifetime: args.tokens.token_lifetime.get(),
            },
            policy: verification_policy(&args.tokens.issuer),
            refresh_tokens: args.tokens.refresh_tokens,
            session_lifetime: args.tokens.refresh_token_lifetime.get(),
            sessions_per_user: args.tokens.sessions_per_user.unwrap_or(max_sessions),
            static_root: static_root(args)?,
            request_timeout: args.limits.request_timeout.duration(),
            max_connections: args.limits.max_connections,
            users: users(&users_location)?,
            users_location,
            foreign_issuers: logouts::foreign_issuers(&args.logouts, &args.tokens.issuer)?,
            mounted_applications: mounted_applications(args)?,
            login_rate_limit: args.limits.login_rate_limit.unwrap_or(max_logins),
            trusted_proxies: TrustedProxies::new(args.limits.trusted_proxy.clone()),
            registry: RegistryConfig::from_args(args)?,
        })
    }

    /// Returns the applications known before the store is read.
    pub(crate) fn registrations(&self) -> ApplicationRegistry {
        let mounted = self
            .mounted_applications
            .as_ref()
            .map(|mounted| mounted.applications.clone());
        ApplicationRegistry::new(self.signing_type == SigningType::Hmac, mounted)
    }

    /// Returns the users who can log in.
    pub(crate) fn user_store(&self) -> Arc<dyn UserStore> {
        match &self.users {
            Some(users) => Arc::clone(users) as _,
            None => Arc::new(BuiltinUser),
        }
    }

    /// Returns the limits of sessions.
    pub(crate) fn session_settings(&self) -> SessionSettings {
        SessionSettings {
            lifetime: self.session_lifetime.into(),
            token_lifetime: self.issuer.lifetime.into(),
            max_of_user: NonZeroUsize::new(self.sessions_per_user as usize),
        }
    }

    /// Returns one key per setting, named like its flag, without secrets.
    ///
    /// # Errors
    /// The errors of the serializer.
    pub(crate) fn printable(&self, args: &ServeArgs) -> Result<Table, ExitError> {
        let mut settings = Table::try_from(args).map_err(|error| {
            ExitError::Software(format!("the configuration cannot be printed: {error}"))
        })?;
        for (_, value) in &mut settings {
            redact_urls(value);
        }
        let derived = [
            // The address without its password.
            ("store", self.store.to_string().into()),
            // The default depends on --listen, and the next two defaults depend on --users.
            ("users", self.users_location.to_string().into()),
            ("login-rate-limit", self.login_rate_limit.into()),
            ("sessions-per-user", self.sessions_per_user.into()),
        ];
        settings.extend(derived.map(|(name, value)| (name.to_owned(), value)));
        if let Some(registry) = &self.registry {
            let port = args.listening.listen.port();
            let advertised = registry
                .advertised
                .instance(port, &self.context_path, false);
            settings.insert("advertise".to_owned(), advertised.authority().into());
        }
        Ok(settings)
    }
}

/// Returns the policy for our own tokens.
pub(crate) fn verification_policy(issuer: &str) -> VerificationPolicy {
    VerificationPolicy {
        issuer: RequiredIssuer::Is(issuer.to_owned()),
        audience: Audience::Any,
        leeway_seconds: LEEWAY_SECONDS,
        ..VerificationPolicy::default()
    }
}

/// Returns the users who can log in. The built-in user has no password: for clients of other machines an
/// operator has to choose that user explicitly.
fn users_location(args: &ServeArgs) -> Result<UsersLocation, ExitError> {
    let listen = args.listening.listen;
    match &args.accounts.users {
        Some(location) => Ok(location.clone()),
        // Only this machine reaches a loopback address, so any password may log in.
        None if is_loopback(listen.ip()) => Ok(UsersLocation::Builtin),
        None => Err(ExitError::Config(format!(
            "--listen {listen}: other machines reach it, and without --users any name with any password \
             logs in; add --users file:FILE, or --users builtin if that is meant"
        ))),
    }
}

fn users(location: &UsersLocation) -> Result<Option<Arc<FileUsers>>, ExitError> {
    let UsersLocation::File(path) = location else {
        return Ok(None);
    };
    match FileUsers::open(path.clone()) {
        Ok(users) => Ok(Some(Arc::new(users))),
        Err(error) => Err(ExitError::Config(format!("--users: {error}"))),
    }
}

fn mounted_applications(args: &ServeArgs) -> Result<Option<MountedApplications>, ExitError> {
    let Some(directory) = args.accounts.applications_dir.clone() else {
        return Ok(None);
    };
    let flag = format!("--applications-dir {}", directory.display());
    match MountedApplications::open(directory) {
        Ok(applications) => Ok(Some(applications)),
        Err(error) => Err(ExitError::Config(format!("{flag}: {error}"))),
    }
}

fn pass_list(args: &ServeArgs) -> Result<PassList, ExitError> {
    let configured = args.pages.public_path.iter().map(String::as_str);
    PassList::parse(PASS_LIST.into_iter().chain(configured)).map_err(|error| {
        ExitError::Config(format!(
            "--public-path '{}': {}",
            error.pattern, error.source
        ))
    })
}

/// Returns the canonical directory if it can be served.
fn static_root(args: &ServeArgs) -> Result<Option<PathBuf>, ExitError> {
    let Some(directory) = &args.pages.static_dir else {
        return Ok(None);
    };
    let rejected = |why: &dyn std::fmt::Display| {
        ExitError::Config(format!("--static-dir {}: {why}", directory.display()))
    };
    let root = directory.canonicalize().map_err(|error| rejected(&error))?;
    if !TREES.iter().any(|tree| root.join(tree).is_dir()) {
        return Err(rejected(&"it holds neither a directory static nor assets"));
    }
    Ok(Some(root))
}

/// Returns the URL of this server's context path (RFC 8414 §2); `None` for an issuer that is a name.
fn issuer_url(issuer: &str) -> Option<ServerUrl> {
    let url = ServerUrl::from_http(issuer).ok()?;
    match url.target().query() {
        None => Some(url),
        Some(_) => None,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    pub(crate) fn config(flags: &[&str]) -> Result<Config, ExitError> {
        Config::from_args(&args(flags))
    }

    pub(crate) fn args(flags: &[&str]) -> Box<ServeArgs> {
        let words = ["auth-server", "serve"].iter().chain(flags);
        match postern_process::command_line::parse_words::<Cli>(words)
            .unwrap()
            .command
        {
            Command::Serve(args) => args,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn users_are_chosen_where_other_machines_reach_the_server() {
        for (address, expected) in [
            ("127.0.0.1:0", true),
            ("127.8.9.10:9000", true),
            ("[::1]:0", true),
            ("[::ffff:127.0.0.1]:0", true),
            ("0.0.0.0:0", false),
            ("[::]:0", false),
            ("[::ffff:0.0.0.0]:0", false),
            ("10.0.0.5:9000", false),
            ("[::ffff:10.0.0.5]:9000", false),
            ("[fe80::1]:9000", false),
        ] {
            let listen = &*format!("--listen={address}");
            assert_eq!(config(&[listen]).is_ok(), expected, "{address}");
            let chosen = config(&[listen, "--users=builtin"]).unwrap();
            assert!(chosen.users.is_none(), "{address}");
        }
    }

    #[test]
    fn an_issuer_is_a_url_or_a_name() {
        for (issuer, expected) in [
            ("https://login.example/auth", true),
            ("https://login.example", true),
            ("http://127.0.0.1:9000/auth", true),
            ("auth", false),
            ("login.example/auth", false),
            ("urn:example:auth", false),
            ("ftp://login.example", false),
            ("https://login.example/auth?x=1", false),
            ("https://login.example/auth#x", false),
            ("https://me@login.example/auth", false),
            ("https://", false),
            ("https://login.example:65536/auth", false),
        ] {
            assert_eq!(issuer_url(issuer).is_some(), expected, "{issuer}");
        }
    }

    #[test]
    fn what_an_operator_should_know_about_the_issuer_is_a_warning() {
        for (issuer, context, expected) in [
            ("https://login.example/auth", "/auth", &[][..]),
            ("https://login.example/auth/", "/auth", &[]),
            ("https://login.example/", "", &[]),
            ("https://login.example", "/auth", &["has to map"]),
            ("http://localhost:9000/auth", "/auth", &[]),
            ("http://auth-server:9000/auth", "/auth", &["plain HTTP"]),
        ] {
            let flags = [
                &*format!("--issuer={issuer}"),
                &*format!("--context-path={context}"),
            ];
            let args = args(&flags);
            let warnings = warnings(&args, &Config::from_args(&args).unwrap());
            let about = warnings.iter().filter(|line| line.starts_with("--issuer"));
            let about: Vec<_> = about.collect();
            assert_eq!(about.len(), expected.len(), "{about:?}");
            assert!(
                about
                    .iter()
                    .zip(expected)
                    .all(|(line, part)| line.contains(part))
            );
        }
    }
}
