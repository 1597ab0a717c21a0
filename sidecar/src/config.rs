//! The configuration, checked through: what is here can be served. Every complaint names its flag.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use contract::claim_mapping::ClaimMapping;
use contract::cors::{AllowedOrigins, Origin};
use contract::interceptor::{Interceptor, TokenSources};
use contract::path_patterns::{ContextPath, PassList};
use contract::signing_type::SigningType;
use contract::verifier::VerificationPolicy;
use process::exit::Failure;

use crate::access_log::AccessLog;
use crate::admission::AdmissionRules;
use crate::bypass;
use crate::cli::ServeArgs;
use crate::cli::rules_args::{IssuerTokenArgs, RulesArgs, ServiceArgs};
use crate::client_tls::{ClientTls, ClientTlsSettings};
use crate::keys::cache::KeyCacheSettings;
use crate::keys::refresh::Schedule;
use crate::keys::source::SourceSettings;
use crate::marks::Marking;
use crate::rules::Rules;
use crate::service_head::ServiceHead;
use crate::status::Protected;
use crate::stop::StopTimes;
use crate::upstream::{
    Place, Protocol, TlsFiles, UpstreamAddress, UpstreamSettings, UpstreamTimeouts, UpstreamTls,
};
use crate::user_header::UserHeader;
use crate::verified_tokens::TokenCache;

mod key_source;
mod open_paths;

pub(crate) use open_paths::example;

/// More would accept tokens long after they expired.
const MAX_LEEWAY_SECONDS: u32 = 300;

/// Everything that `serve` needs to know.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) admin_listen: SocketAddr,
    /// `None`: the port speaks plainly.
    pub(crate) tls: Option<ClientTlsSettings>,
    /// About the lists of open paths.
    second_thoughts: Vec<String>,
    /// Where the service is looked for on the pod's address, and whether it must not be found there.
    pub(crate) bypass: Option<(SocketAddr, bool)>,
    pub(crate) rules: Rules,
    pub(crate) upstream: UpstreamSettings,
    pub(crate) end_streams: bool,
    pub(crate) key_source: SourceSettings,
    pub(crate) key_cache: Option<KeyCacheSettings>,
    trusts_shared_secret: bool,
    pub(crate) previous_key_grace: Duration,
    pub(crate) token_cache: TokenCache,
    pub(crate) refresh: Schedule,
    /// `None` for ever.
    pub(crate) max_key_age: Option<Duration>,
    pub(crate) request_header_timeout: Duration,
    /// `None` waits for ever.
    pub(crate) request_body_timeout: Option<Duration>,
    /// The same.
    pub(crate) send_timeout: Option<Duration>,
    /// Where it was asked for.
    pub(crate) max_connections: Option<usize>,
    /// The same.
    pub(crate) max_in_flight: Option<usize>,
    pub(crate) threads: usize,
    pub(crate) stop: StopTimes,
    pub(crate) access_log: AccessLog,
    pub(crate) marking: Marking,
}

impl Config {
    /// # Errors
    /// [`Failure::Config`] with one line that names the flag and what is wrong with its value.
    pub(crate) fn new(args: &ServeArgs) -> Result<Self, Failure> {
        let key_source = key_source::settings(args)?;
        let upstream = upstream_address(&args.service)?;
        refuse_own_address(args, &upstream)?;
        let rules = Rules {
            admission: admission_rules(&args.rules, mapping(args)?, &upstream)?,
            service_head: service_head(&args.rules),
            protected: protected(args, &key_source),
        };
        Ok(Self {
            listen: args.listen,
            admin_listen: args.admin_listen,
            tls: client_tls(args)?,
            second_thoughts: open_paths::second_thoughts(&args.rules)?,
            bypass: bypass(args, &upstream),
            rules,
            upstream: UpstreamSettings {
                timeouts: upstream_timeouts(args),
                tls: upstream_tls(args, &upstream)?,
                address: upstream,
            },
            end_streams: args.end_streams,
            trusts_shared_secret: args.signing_type == Some(SigningType::Hmac),
            key_cache: key_source::key_cache(args, &key_source)?,
            previous_key_grace: Duration::from_secs(args.previous_key_grace),
            token_cache: TokenCache {
                bytes: args.token_cache_bytes,
                ..TokenCache::default()
            },
            refresh: Schedule::new(&args.refresh_cron)
                .map_err(|error| refused("refresh-cron", &args.refresh_cron, error))?,
            max_key_age: patience(args.max_key_age),
            request_header_timeout: Duration::from_secs(args.request_header_timeout),
            request_body_timeout: patience(args.request_body_timeout),
            send_timeout: patience(args.send_timeout),
            max_connections: args.max_connections,
            max_in_flight: args.max_in_flight,
            threads: args.threads,
            stop: StopTimes {
                lame_duck: Duration::from_secs(args.lame_duck),
                drain_limit: Duration::from_secs(args.drain_limit),
            },
            access_log: args.access_log,
            marking: args.marks.marking(),
            key_source,
        })
    }

    /// What works but deserves a second thought.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let settings = self.warnings_of_settings().into_iter();
        settings
            .map(ToOwned::to_owned)
            .chain(self.second_thoughts.iter().cloned())
            .collect()
    }

    fn warnings_of_settings(&self) -> Vec<&'static str> {
        let mut warnings = Vec::new();
        if !self.rules.admission.policy.require_expiry {
            warnings.push("--allow-no-exp: a token without an expiry is accepted for ever");
        }
        if self.rules.service_head.reuse_after_body {
            warnings.push(
                "--reuse-after-body: a service that leaves a body unread takes it for a request",
            );
        }
        if self.trusts_shared_secret {
            warnings
                .push("--signing-type hmac: whoever reads this process's memory can issue tokens");
        }
        if self.key_source.is_plain_over_a_network() {
            warnings.push(match self.key_source {
                SourceSettings::AuthServer(_) => {
                    "--auth-server: the application secret and the key travel there in plain HTTP"
                }
                _ => "--jwks-url: whoever is on the way can replace the keys, it is plain HTTP",
            });
        }
        if self.key_source.shows_password() {
            warnings.push("--auth-server: the registry's password travels there in plain HTTP");
        }
        warnings
    }
}

fn client_tls(args: &ServeArgs) -> Result<Option<ClientTlsSettings>, Failure> {
    let settings = args
        .tls
        .certificate()?
        .map(|certificate| ClientTlsSettings {
            certificate,
            client_ca: args.client_ca.clone(),
        });
    // To be told by `check` too.
    settings.as_ref().map(ClientTls::new).transpose()?;
    Ok(settings)
}

/// What decides about requests.
///
/// # Errors
/// As [`Config::new`].
pub(crate) fn admission_rules(
    args: &RulesArgs,
    mapping: Option<ClaimMapping>,
    upstream: &UpstreamAddress,
) -> Result<AdmissionRules, Failure> {
    let user_header = UserHeader::new(&args.user_header, args.max_user_header_bytes)
        .map_err(|error| refused("user-header", &args.user_header, error))?;
    let mut rules = AdmissionRules::new(interceptor(args)?, policy(args, mapping)?, user_header);
    rules.carries_websockets = upstream.carries_websockets();
    Ok(rules)
}

fn interceptor(args: &RulesArgs) -> Result<Interceptor, Failure> {
    let interceptor = Interceptor::new(
        context_path(&args.app_name)?,
        pass_list(args)?,
        args.max_authorization_bytes,
    );
    Ok(interceptor
        .with_allowed_origins(allowed_origins(args)?)
        .with_optional(patterns("optional", &args.optional)?)
        .with_sources(TokenSources {
            cookie: token_cookie(args)?,
            websocket_protocol: args.websocket_token,
        }))
}

fn allowed_origins(args: &RulesArgs) -> Result<AllowedOrigins, Failure> {
    let origins = args.cors_origin.iter();
    let origins: Result<Vec<Origin>, Failure> = origins
        .map(|origin| parsed("cors-origin", origin))
        .collect();
    origins.map(AllowedOrigins::new)
}

/// How a request is handed to the service.
pub(crate) const fn service_head(args: &RulesArgs) -> ServiceHead {
    ServiceHead {
        forward_authorization: args.forward_authorization,
        reuse_after_body: args.reuse_after_body,
        forwarded: args.forwarded,
    }
}

fn protected(args: &ServeArgs, key_source: &SourceSettings) -> Protected {
    Protected {
        service: args.service.upstream.clone(),
        context_path: match args.rules.app_name.as_str() {
            "" => String::new(),
            name => format!("/{name}"),
        },
        open_paths: args.rules.pass.clone(),
        optional_paths: args.rules.optional.clone(),
        token_cookie: args.rules.token_cookie.clone(),
        websocket_token: args.rules.websocket_token,
        user_header: args.rules.user_header.clone(),
        issuer: args.rules.issuer.clone(),
        audience: args.rules.audience.clone(),
        cors_origins: args.rules.cors_origin.clone(),
        keys_from: key_source.to_string(),
    }
}

fn pass_list(args: &RulesArgs) -> Result<PassList, Failure> {
    patterns("pass", &args.pass)
}

fn patterns(flag: &str, patterns: &[String]) -> Result<PassList, Failure> {
    PassList::parse(patterns.iter().map(String::as_str))
        .map_err(|error| refused(flag, &error.pattern, error.source))
}

/// A name as RFC 6265 §4.1.1 has it.
fn token_cookie(args: &RulesArgs) -> Result<Option<String>, Failure> {
    let is_of_a_token =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match args.token_cookie.as_deref() {
        Some(name) if name.is_empty() || !name.bytes().all(is_of_a_token) => {
            Err(refused("token-cookie", name, "is not the name of a cookie"))
        }
        name => Ok(name.map(ToOwned::to_owned)),
    }
}

/// The context path is the application's name (contract §1).
fn context_path(app_name: &str) -> Result<ContextPath, Failure> {
    let prefix = match app_name {
        "" => String::new(),
        name => format!("/{name}"),
    };
    prefix.parse().map_err(|error| match app_name {
        name if name.starts_with('/') => {
            refused("app-name", name, "write it without the leading '/'")
        }
        name => refused("app-name", name, error),
    })
}

fn policy(args: &RulesArgs, mapping: Option<ClaimMapping>) -> Result<VerificationPolicy, Failure> {
    if args.leeway > MAX_LEEWAY_SECONDS {
        let why = format!("is more than {MAX_LEEWAY_SECONDS}");
        return Err(refused("leeway", args.leeway, why));
    }
    Ok(VerificationPolicy {
        issuer: not_empty("issuer", args.issuer.as_deref())?,
        audience: not_empty("audience", args.audience.as_deref())?,
        leeway_seconds: args.leeway,
        require_expiry: !args.allow_no_exp,
        mapping,
    })
}

/// The contract's claims are the auth server's; another issuer's are mapped.
fn mapping(args: &ServeArgs) -> Result<Option<ClaimMapping>, Failure> {
    if args.auth_server.is_some() {
        return Ok(None);
    }
    issuer_mapping(&args.issuer_tokens).map(Some)
}

/// # Errors
/// As [`Config::new`].
pub(crate) fn issuer_mapping(args: &IssuerTokenArgs) -> Result<ClaimMapping, Failure> {
    ClaimMapping::parse(args.claim.iter().map(String::as_str))
        .map_err(|(entry, error)| refused("claim", entry, error))
}

/// An empty variable is a mistake in a manifest, not a wish to leave the check out.
fn not_empty(flag: &str, value: Option<&str>) -> Result<Option<String>, Failure> {
    match value {
        Some("") => Err(refused(flag, "", "is empty")),
        value => Ok(value.map(ToOwned::to_owned)),
    }
}

/// # Errors
/// As [`Config::new`].
pub(crate) fn upstream_address(args: &ServiceArgs) -> Result<UpstreamAddress, Failure> {
    parsed("upstream", &args.upstream)
}

fn refuse_own_address(args: &ServeArgs, address: &UpstreamAddress) -> Result<(), Failure> {
    let own = [("listen", args.listen), ("admin-listen", args.admin_listen)];
    match own.into_iter().find(|(_, own)| address.leads_to(*own)) {
        None => Ok(()),
        Some((flag, own)) => {
            let why = format!("is this sidecar's own --{flag} {own}; it has to be the service's");
            Err(refused("upstream", &args.service.upstream, why))
        }
    }
}

/// `None` where the service does not speak TLS; the flags about it are a mistake then.
fn upstream_tls(
    args: &ServeArgs,
    address: &UpstreamAddress,
) -> Result<Option<UpstreamTls>, Failure> {
    let host = match &address.place {
        Place::Host { host, .. } if address.protocol == Protocol::Https => host,
        _ => return no_upstream_tls(args),
    };
    let client = match (&args.upstream_client_cert, &args.upstream_client_key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        _ => {
            let line = "--upstream-client-cert and --upstream-client-key belong together";
            return Err(Failure::Config(line.to_owned()));
        }
    };
    let server_name = not_empty("upstream-server-name", args.upstream_server_name.as_deref())?;
    let files = TlsFiles {
        server_name: server_name.unwrap_or_else(|| host.clone()),
        ca: args.upstream_ca.clone(),
        client,
    };
    UpstreamTls::load(&files)
        .map(Some)
        .map_err(|error| refused("upstream", &args.service.upstream, error))
}

fn no_upstream_tls(args: &ServeArgs) -> Result<Option<UpstreamTls>, Failure> {
    let asked_for = [
        ("upstream-ca", args.upstream_ca.is_some()),
        ("upstream-client-cert", args.upstream_client_cert.is_some()),
        ("upstream-client-key", args.upstream_client_key.is_some()),
        ("upstream-server-name", args.upstream_server_name.is_some()),
    ];
    match asked_for.into_iter().find(|(_, asked_for)| *asked_for) {
        None => Ok(None),
        Some((flag, _)) => Err(Failure::Config(format!(
            "--{flag}: only with an --upstream of https://"
        ))),
    }
}

fn bypass(args: &ServeArgs, upstream: &UpstreamAddress) -> Option<(SocketAddr, bool)> {
    let target = bypass::target(upstream, args.pod_ip?)?;
    Some((target, args.refuse_bypass))
}

fn upstream_timeouts(args: &ServeArgs) -> UpstreamTimeouts {
    UpstreamTimeouts {
        connect: Duration::from_secs(args.upstream_connect_timeout),
        read: patience(args.upstream_read_timeout),
    }
}

/// 0 is for ever.
fn patience(seconds: u64) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

fn parsed<T: std::str::FromStr<Err: Display>>(flag: &str, value: &str) -> Result<T, Failure> {
    value.parse().map_err(|error| refused(flag, value, error))
}

fn refused(flag: &str, value: impl Display, why: impl Display) -> Failure {
    Failure::Config(format!("--{flag} '{value}': {why}"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    const AUTH_SERVER: [&str; 2] = ["--auth-server", "http://127.0.0.1:9000/auth"];
    const APPLICATION: [&str; 4] = ["--app-id", "orders", "--app-secret", "hush"];

    fn config(arguments: &[&str]) -> Result<Config, Failure> {
        let line = [&["sidecar", "serve"], arguments].concat();
        match Cli::try_parse_from(line).unwrap().command {
            Command::Serve(args) => Config::new(&args),
            other => unreachable!("{other:?}"),
        }
    }

    fn with(arguments: &[&str]) -> Result<Config, Failure> {
        config(&[&AUTH_SERVER[..], &APPLICATION, arguments].concat())
    }

    #[test]
    fn the_defaults_are_usable_and_strict() {
        let config = with(&[]).unwrap();
        match &config.key_source {
            SourceSettings::AuthServer(settings) => {
                assert_eq!(settings.signing_type, SigningType::Rsa);
            }
            other => unreachable!("{other}"),
        }
        assert!(config.previous_key_grace.is_zero());
        assert!(config.rules.admission.policy.require_expiry);
        assert!(config.rules.service_head.forward_authorization);
        assert_eq!(config.upstream.address.to_string(), "http://127.0.0.1:3000");
        assert!(config.warnings().is_empty());
    }

    #[test]
    fn every_complaint_is_one_line_that_names_the_flag() {
        for (arguments, flag) in [
            (["--upstream", ""], "--upstream"),
            (["--upstream", "ftp://a:1"], "--upstream"),
            (["--upstream-ca", "/nowhere"], "https://"),
            (["--upstream-server-name", "a"], "https://"),
            (["--app-name", "a/../b"], "--app-name"),
            (["--app-name", "/orders"], "without the leading '/'"),
            (["--upstream", "http://127.0.0.1:8080"], "--listen"),
            (["--upstream", "http://0.0.0.0:8080"], "--listen"),
            (["--upstream", "http://localhost:8081"], "--admin-listen"),
            (["--pass", "static/**"], "--pass"),
            (["--leeway", "301"], "--leeway"),
            (["--cors-origin", "*"], "--cors-origin"),
            (["--cors-origin", "https://app.example/"], "--cors-origin"),
            (["--optional", "feed/**"], "--optional"),
            (["--token-cookie", ""], "--token-cookie"),
            (["--token-cookie", "a;b"], "--token-cookie"),
            (["--issuer", ""], "--issuer"),
            (["--audience", ""], "--audience"),
            (["--user-header", "Host"], "--user-header"),
            (["--refresh-cron", "* * * * *"], "--refresh-cron"),
            (["--refresh-cron", "hourly"], "--refresh-cron"),
            (["--signing-type", "hmac"], "--trust-shared-secret"),
            (["--app-secret-file", "/nowhere"], "--app-secret-file"),
            (["--auth-ca", "/nowhere"], "--auth-ca"),
            (["--dns-server", "127.0.0.1:53"], "--dns-server"),
            (["--key-cache", ".."], "--key-cache"),
        ] {
            match with(&arguments) {
                Err(Failure::Config(line)) => {
                    assert!(line.contains(flag) && !line.contains('\n'), "{line}");
                }
                other => unreachable!("{arguments:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_application_needs_an_id_and_one_secret() {
        for (arguments, flag) in [
            (&["--app-id", "a"][..], "--app-secret"),
            (&["--app-id", "a", "--app-secret", ""], "--app-secret"),
            (&["--app-id", "", "--app-secret", "b"], "--app-id"),
            (
                &["--app-id", "a", "--app-secret-file", "/nowhere"],
                "/nowhere",
            ),
        ] {
            let failure = config(&[&AUTH_SERVER[..], arguments].concat()).unwrap_err();
            assert_eq!(failure.code(), 78);
            assert!(failure.to_string().contains(flag), "{failure}");
        }
    }

    const ISSUER: [&str; 6] = [
        "--jwks-url",
        "https://idp/keys",
        "--issuer",
        "https://idp/",
        "--audience",
        "orders",
    ];

    #[test]
    fn another_issuer_needs_no_application_and_has_a_mapping() {
        let config = config(&ISSUER).unwrap();
        assert_eq!(config.key_source.to_string(), "https://idp/keys");
        assert!(config.rules.admission.policy.mapping.is_some());
        assert!(config.warnings().is_empty());
        assert!(with(&[]).unwrap().rules.admission.policy.mapping.is_none());
    }

    #[test]
    fn what_is_wrong_with_an_issuer_is_named() {
        for (arguments, mentions) in [
            (["--claim", "id"], "--claim 'id'"),
            (["--claim", "idd=sub"], "--claim 'idd=sub'"),
            (["--claim", "id=sub,id=uid"], "--claim 'id=uid'"),
        ] {
            let failure = config(&[&ISSUER[..], &arguments].concat()).unwrap_err();
            assert_eq!(failure.code(), 78);
            assert!(failure.to_string().contains(mentions), "{failure}");
        }
        let ftp = [&["--jwks-url", "ftp://idp/keys"], &ISSUER[2..]].concat();
        let failure = config(&ftp).unwrap_err().to_string();
        assert!(
            failure.starts_with("--jwks-url 'ftp://idp/keys'"),
            "{failure}"
        );
    }

    #[test]
    fn plain_http_over_a_network_is_warned_about() {
        for (flag, url, warnings) in [
            ("--auth-server", "http://auth:9000/auth", 1),
            ("--auth-server", "dns+srv://_auth._tcp.internal/auth", 1),
            ("--auth-server", "https://auth:9000/auth", 0),
            ("--jwks-url", "http://idp/keys", 1),
            ("--jwks-url", "http://127.0.0.1:9/keys", 0),
        ] {
            let more = match flag {
                "--jwks-url" => &ISSUER[2..],
                _ => &APPLICATION,
            };
            let config = config(&[&[flag, url], more].concat()).unwrap();
            let said = config.warnings();
            assert_eq!(said.len(), warnings, "{url}");
            assert!(said.iter().all(|warning| warning.starts_with(flag)));
        }
    }

    #[test]
    fn what_is_said_of_a_registry_has_to_fit_together() {
        for (auth_server, flags, problem) in [
            ("nacos://a/auth", &[][..], None),
            ("nacos://me:hush@a/auth", &[], None),
            ("nacos://me@a/auth", &[], Some("a user needs a password")),
            (
                "nacos://me@a/auth",
                &["--registry-password-file", "/nowhere"],
                Some("--registry-password-file: "),
            ),
            (
                "nacos://:hush@a/auth",
                &[],
                Some("--auth-server 'nacos://a/auth'"),
            ),
            (
                "nacos+https://a/auth",
                &["--auth-server-name", "auth.internal"],
                None,
            ),
            (
                "nacos://a/auth",
                &["--auth-server-name", "auth.internal"],
                Some("--auth-server-name is of use only"),
            ),
            (
                "https://a/auth",
                &["--auth-server-name", "auth.internal"],
                Some("--auth-server-name is of use only"),
            ),
        ] {
            let flags = [&["--auth-server", auth_server][..], &APPLICATION, flags].concat();
            match (config(&flags), problem) {
                (Ok(config), None) => assert!(!format!("{config:?}").contains("hush")),
                (Err(failure), Some(problem)) => {
                    let line = failure.to_string();
                    assert!(line.contains(problem) && !line.contains("hush"), "{line}");
                }
                (other, _) => unreachable!("{auth_server}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_allowed_against_the_rule_is_warned_about() {
        let config = with(&[
            "--allow-no-exp",
            "--reuse-after-body",
            "--signing-type",
            "hmac",
            "--trust-shared-secret",
        ])
        .unwrap();
        assert_eq!(config.warnings().len(), 3);
    }

    #[test]
    fn what_is_a_secret_or_a_file_already_is_not_cached() {
        let cache = ["--key-cache", "/tmp/keys"];
        let hmac = ["--signing-type", "hmac", "--trust-shared-secret"];
        let failure = with(&[&cache[..], &hmac].concat()).unwrap_err();
        assert_eq!(failure.code(), 78);
        assert!(failure.to_string().contains("secret"), "{failure}");
        let file = [&["--jwks-file", "/nowhere"], &ISSUER[2..], &cache].concat();
        let failure = config(&file).unwrap_err().to_string();
        assert!(failure.starts_with("--key-cache"), "{failure}");
        assert!(with(&cache).unwrap().key_cache.is_some());
        assert!(with(&[]).unwrap().key_cache.is_none());
    }

    #[test]
    fn a_secret_is_in_no_debug_output() {
        assert!(!format!("{:?}", with(&[]).unwrap()).contains("hush"));
    }
}
