//! `check`: the effective configuration as a configuration file, without secrets. Where it prints,
//! `serve` would start.

use process::exit::Failure;
use toml::{Table, Value};

use super::print;
use crate::cli::ServeArgs;
use crate::config::Config;
use crate::registry;

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let config = Config::from_args(args)?;
    print(effective(args, &config).to_string().trim_end())
}

/// One key per setting, under the name of its flag.
fn effective(args: &ServeArgs, config: &Config) -> Table {
    let mut settings = Table::new();
    let mut set = |name: &str, value: Value| {
        settings.insert(name.to_owned(), value);
    };
    set("listen", args.listen.to_string().into());
    let store = &args.store;
    let encryption = &store.encryption;
    for (name, file) in [
        ("tls-cert", &args.tls.tls_cert),
        ("tls-key", &args.tls.tls_key),
        ("store-password-file", &store.store_password_file),
        ("store-ca", &store.store_ca),
        ("store-client-cert", &store.store_client_cert),
        ("store-client-key", &store.store_client_key),
        (
            "store-sentinel-password-file",
            &store.store_sentinel_password_file,
        ),
        (
            "key-encryption-key-file",
            &encryption.key_encryption_key_file,
        ),
        (
            "key-encryption-key-previous-file",
            &encryption.key_encryption_key_previous_file,
        ),
    ] {
        if let Some(file) = file {
            set(name, file.display().to_string().into());
        }
    }
    set("admin-listen", args.admin_listen.to_string().into());
    set("context-path", args.context_path.as_str().into());
    set("store", config.store.to_string().into());
    if let Some(user) = &store.store_sentinel_user {
        set("store-sentinel-user", user.as_str().into());
    }
    set(
        "require-encrypted-keys",
        encryption.require_encrypted_keys.into(),
    );
    set("signing-type", config.signing_type.as_str().into());
    set("store-reread", args.store_reread.into());
    set("rotation-lead", args.lead.rotation_lead.into());
    set("rotate-every", args.rotate_every.to_string().into());
    set("token-lifetime", args.token_lifetime.into());
    set("issuer", args.issuer.as_str().into());
    set("leeway", args.leeway.into());
    set("oauth-response", args.oauth_response.into());
    set(
        "pass",
        args.pass
            .iter()
            .map(|pattern| Value::from(pattern.as_str()))
            .collect::<Vec<_>>()
            .into(),
    );
    if let Some(root) = &config.static_root {
        set("static-dir", root.display().to_string().into());
    }
    set("request-timeout", args.request_timeout.into());
    set("lame-duck", args.lame_duck.into());
    set("max-connections", args.max_connections.into());
    set("users", args.users.to_string().into());
    set("login-rate", config.login_rate.into());
    set(
        "trusted-proxy",
        args.trusted_proxy
            .iter()
            .map(|network| Value::from(network.to_string()))
            .collect::<Vec<_>>()
            .into(),
    );
    set("registry", registry::shown(config.registry.as_ref()).into());
    if let Some(registry) = &config.registry {
        set("advertise", registry.advertised.to_string().into());
    }
    let registry = &args.registry_args;
    set(
        "registry-namespace",
        registry.registry_namespace.as_str().into(),
    );
    set("registry-group", registry.registry_group.as_str().into());
    set(
        "registry-service",
        registry.registry_service.as_str().into(),
    );
    if let Some(file) = &registry.registry_password_file {
        set("registry-password-file", file.display().to_string().into());
    }
    for (name, origins) in [
        ("cors-origin", &args.cors_origin),
        ("console-target", &args.console_target),
    ] {
        let origins = origins.iter().map(|origin| Value::from(origin.as_str()));
        set(name, origins.collect::<Vec<_>>().into());
    }
    set("request-id", args.request_id.into());
    set(
        "access-log",
        format!("{:?}", args.access_log).to_lowercase().into(),
    );
    set(
        "log-format",
        format!("{:?}", args.logs.log_format).to_lowercase().into(),
    );
    set("log-level", args.logs.log_level.as_str().into());
    settings
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Cli, Command};

    fn effective_of(flags: &[&str]) -> Table {
        let cli = Cli::try_parse_from(["auth-server", "check"].iter().chain(flags)).unwrap();
        let Command::Check(args) = cli.command else {
            unreachable!("check was asked for")
        };
        effective(&args, &Config::from_args(&args).unwrap())
    }

    #[test]
    fn every_flag_of_serve_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("static")).unwrap();
        let shown = effective_of(&[
            "--static-dir",
            directory.path().to_str().unwrap(),
            "--pass",
            "/a/**",
            "--registry",
            "nacos://me:hush@nacos",
            "--advertise",
            "auth:9000",
        ]);
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        for flag in serve
            .get_arguments()
            .filter_map(|argument| argument.get_long())
        {
            let optional = flag.ends_with("-password-file")
                || ["tls-", "store-", "key-encryption-"]
                    .iter()
                    .any(|prefix| flag.starts_with(prefix));
            assert!(
                optional || shown.contains_key(flag),
                "--{flag} is not shown"
            );
        }
    }

    #[test]
    fn a_registry_is_shown_without_its_user() {
        let flags = [
            "--registry",
            "nacos://me:hush@a,b:1",
            "--advertise",
            "[::1]:1",
        ];
        let shown = effective_of(&flags);
        assert_eq!(shown["registry"].as_str(), Some("nacos://a:8848,b:1"));
        assert_eq!(shown["advertise"].as_str(), Some("[::1]:1"));
        assert_eq!(effective_of(&[])["registry"].as_str(), Some("none"));
    }

    #[test]
    fn the_password_of_a_store_is_not_shown() {
        let shown = effective_of(&["--store", "redis://user:hush@store:7000/2"]).to_string();
        assert!(
            shown.contains("redis://store:7000/2") && !shown.contains("hush"),
            "{shown}"
        );
    }
}
