//! Warnings about valid but risky settings: `serve` logs them, `check` prints them.

use postern_http::host::loopback::is_loopback;
use postern_process::clock::unix_now;
use postern_process::command_line::{exposed_secrets, joined_members};

use super::{Config, rotation};
use crate::cli::logout_table::LogoutTable;
use crate::cli::{Cli, ServeArgs};

/// Returns one line per warning.
pub(crate) fn warnings(args: &ServeArgs, config: &Config) -> Vec<String> {
    let mut warnings = store_warnings(args, config);
    warnings.extend(token_warnings(args, config));
    warnings.extend(network_warnings(args, config));
    warnings.extend(args.logouts.iter().filter_map(LogoutTable::warning));
    if let Some(users) = &config.users {
        warnings.extend(users.warnings());
    }
    if let Some(mounted) = &config.mounted_applications {
        warnings.extend(mounted.warnings());
    }
    warnings.extend(exposed_secrets::<Cli>());
    warnings
}

fn store_warnings(args: &ServeArgs, config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let lead = args.keys.lead.rotation_lead;
    let interval = args.keys.store_poll_interval;
    let shortest = rotation::shortest_lead(interval.get());
    if i64::from(lead.get()) < shortest {
        warnings.push(format!(
            "--rotation-lead {lead}: a server or a sidecar may hear of a key only after it signs; \
             with --store-poll-interval {interval} at least {shortest} seconds are needed"
        ));
    }
    let store = &config.store;
    if store.is_in_clear() {
        warnings.push(format!(
            "--store {store}: the connection is not encrypted; its password and the private keys ({}) travel on it. \
             rediss encrypts it",
            store.at_rest()
        ));
    }
    if store.is_in_memory() {
        warnings.push(
            "--store memory: keys, sessions and revocations end with this process; not for production"
                .to_owned(),
        );
    }
    warnings.extend(store.ending_certificate(unix_now()));
    warnings
}

fn token_warnings(args: &ServeArgs, config: &Config) -> Vec<String> {
    let mut warnings = joined_members("audience", args.tokens.audience.iter().map(String::as_str));
    let session = config.session_lifetime;
    let token = config.issuer.lifetime;
    if config.refresh_tokens && session <= token {
        warnings.push(format!(
            "--refresh-token-lifetime {session}: no longer than --token-lifetime {token}, so that there is \
             nothing to refresh; the latter can be as short as 300"
        ));
    }
    let Some(url) = &config.issuer_url else {
        return warnings;
    };
    let issuer = &args.tokens.issuer;
    let context = config.context_path.as_str();
    if url.is_plain_over_a_network() {
        warnings.push(format!(
            "--issuer {issuer}: plain HTTP: an attacker on the way can replace the keys that are discovered there"
        ));
    }
    // Otherwise the URL ends with the context path.
    if url.target().path().trim_end_matches('/') != context {
        warnings.push(format!(
            "--issuer {issuer}: the discovery documents name endpoints below it, and the context path is '{context}': \
             a gateway has to map one to the other"
        ));
    }
    warnings
}

fn network_warnings(args: &ServeArgs, config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(registry) = &config.registry
        && registry.settings.shows_password()
    {
        warnings.push("--registry: the password travels there in plain HTTP".to_owned());
    }
    if config.users.is_none() {
        warnings.push(
            "--users builtin: any name with any password logs in as the same user; not for production"
                .to_owned(),
        );
    }
    let listen = args.listening.listen;
    match &config.tls {
        Some(tls) => warnings.extend(tls.ending(unix_now())),
        None if !is_loopback(listen.ip()) => warnings.push(format!(
            "--listen {listen} without --tls-cert: passwords and application secrets travel \
             unencrypted unless something in front of this server sees to it"
        )),
        None => {}
    }
    warnings
}
