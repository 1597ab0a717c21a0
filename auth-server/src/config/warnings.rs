//! Warnings about valid but risky settings: `serve` logs them, `check` prints them.

use runtime::command_line::exposed_secrets;
use runtime::process::clock::unix_now;

use super::{Config, rotation};
use crate::applications::directory::MountedApplications;
use crate::cli::{Cli, ServeArgs};

/// Returns one line per warning.
pub(crate) fn warnings(args: &ServeArgs, config: &Config) -> Vec<String> {
    [
        short_lead(args),
        short_sessions(config),
        open_store(config),
        passing_store(config),
        open_registry(config),
        builtin_users(config),
        open_port(args, config),
        plain_issuer(args, config),
        mapped_issuer(args, config),
        expired_certificate(config),
        config.store.expired_certificate(unix_now()),
    ]
    .into_iter()
    .flatten()
    .chain(config.users.iter().flat_map(|users| users.warnings()))
    .chain(unusable_applications(config))
    .chain(exposed_secrets::<Cli>())
    .collect()
}

fn unusable_applications(config: &Config) -> impl Iterator<Item = String> {
    let mounted = config.mounted_applications.iter();
    mounted.flat_map(MountedApplications::warnings)
}

fn short_lead(args: &ServeArgs) -> Option<String> {
    let lead = args.keys.lead.rotation_lead;
    let shortest = rotation::shortest_lead(args.keys.store_poll_interval.get());
    (i64::from(lead.get()) < shortest).then(|| {
        format!(
            "--rotation-lead {lead}: a server or a sidecar may hear of a key only after it signs; \
             with --store-poll-interval {} at least {shortest} seconds are needed",
            args.keys.store_poll_interval
        )
    })
}

fn short_sessions(config: &Config) -> Option<String> {
    let (session, token) = (config.session_lifetime, config.issuer.lifetime);
    (config.refresh_tokens && session <= token).then(|| {
        format!(
            "--refresh-token-lifetime {session}: no longer than --token-lifetime {token}, so that there is \
             nothing to refresh; the latter can be as short as 300"
        )
    })
}

fn open_store(config: &Config) -> Option<String> {
    config.store.is_in_clear().then(|| {
        format!(
            "--store {}: the connection is not encrypted; its password and the private keys ({}) travel on it. \
             rediss encrypts it",
            config.store,
            config.store.at_rest()
        )
    })
}

fn passing_store(config: &Config) -> Option<String> {
    let is_passing = config.store.is_in_memory();
    is_passing.then(|| {
        "--store memory: keys, sessions and revocations end with this process; not for production"
            .to_owned()
    })
}

fn open_registry(config: &Config) -> Option<String> {
    let settings = &config.registry.as_ref()?.settings;
    settings
        .shows_password()
        .then(|| "--registry: the password travels there in plain HTTP".to_owned())
}

fn builtin_users(config: &Config) -> Option<String> {
    config.users.is_none().then(|| {
        "--users builtin: any name with any password logs in as the same user; not for production"
            .to_owned()
    })
}

fn open_port(args: &ServeArgs, config: &Config) -> Option<String> {
    (config.tls.is_none() && !args.listening.listen.ip().is_loopback()).then(|| {
        format!(
            "--listen {} without --tls-cert: passwords and application secrets travel \
             unencrypted unless something in front of this server sees to it",
            args.listening.listen
        )
    })
}

fn plain_issuer(args: &ServeArgs, config: &Config) -> Option<String> {
    let url = config.issuer_url.as_ref()?;
    url.is_plain_over_a_network().then(|| {
        format!(
            "--issuer {}: plain HTTP: an attacker on the way can replace the keys that are discovered there",
            args.tokens.issuer
        )
    })
}

fn mapped_issuer(args: &ServeArgs, config: &Config) -> Option<String> {
    let url = config.issuer_url.as_ref()?;
    let context = &args.listening.context_path;
    // Otherwise the URL ends with the context path.
    let path = url.target().path().trim_end_matches('/');
    (path != context.as_str()).then(|| {
        format!(
            "--issuer {}: the discovery documents name endpoints below it, and the context path is '{}': \
             a gateway has to map one to the other",
            args.tokens.issuer,
            context.as_str()
        )
    })
}

fn expired_certificate(config: &Config) -> Option<String> {
    config.tls.as_ref()?.expired(unix_now())
}
