//! The command line. Each doc comment is the help text of its command or flag.

pub(crate) mod enforcement_args;
pub(crate) mod explain_args;
pub(crate) mod issuer_table;
mod key_args;
mod limit_args;
mod listen_args;
mod log_args;
pub(crate) mod policy_args;
pub(crate) mod revocation_args;
pub(crate) mod rule_args;
mod serve_args;
pub(crate) mod service_args;

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand};
use runtime::command_line::completions::CompletionsArgs;
use runtime::command_line::seconds::{Seconds, at_least_one};
use runtime::command_line::{ArrayTables, FromTables};
use runtime::net::listener::ip_address_and_port;
use runtime::process::exit::ExitError;

use explain_args::ExplainArgs;
pub(crate) use serve_args::ServeArgs;

/// Stands in front of one service and lets only requests with a valid access token through
#[derive(Debug, Parser)]
#[command(name = "sidecar", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl FromTables for Cli {
    const NAMES: &'static [&'static str] = &[RULE, ISSUER];

    fn take(&mut self, tables: &ArrayTables) -> Result<(), ExitError> {
        let settings = match &mut self.command {
            Command::Serve(settings) => &mut **settings,
            Command::Check(check) => &mut check.settings,
            _ => return Ok(()),
        };
        settings.rules.rule = tables.read(RULE)?;
        settings.set_issuers(tables.read(ISSUER)?)
    }
}

/// The array of tables of rules.
const RULE: &str = "rule";
/// The array of tables of further issuers.
const ISSUER: &str = "issuer";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve until SIGTERM or SIGINT. The files of settings, certificates, keys and the
    /// application's secret are read again when they change, and at SIGHUP
    Serve(Box<ServeArgs>),
    /// Check the configuration and print the effective settings without secrets
    Check(Box<CheckArgs>),
    /// Check that a running sidecar is ready
    Healthcheck(HealthcheckArgs),
    /// Have a running sidecar explain why it accepts or rejects a request, and print the request that
    /// the service would get, without sending it
    Explain(ExplainArgs),
    /// Take a running sidecar out of service: it reports not ready and goes on serving; this
    /// command ends when no request is in flight
    Drain(DrainArgs),
    /// Wait until a sidecar is ready
    Wait(WaitArgs),
    /// Print the script by which a shell completes commands and flags
    Completions(CompletionsArgs),
}

/// The settings of `serve`, and the strictness of the check.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Fetch the key, compare clocks with its server, connect to the service, and probe the service
    /// on the pod's address: exit code 69 if something is unreachable, 78 if it is rejected
    #[arg(long)]
    pub(crate) online: bool,

    /// List what each pattern opens or has a rule for, and those that catch nothing
    #[arg(long)]
    pub(crate) paths: bool,

    /// End with exit code 78 at any warning
    #[arg(long)]
    pub(crate) strict: bool,

    // These come last: a heading holds for every flag after it.
    #[command(flatten)]
    pub(crate) settings: ServeArgs,
}

/// The sidecar that a command queries.
#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// Admin address of the sidecar
    #[arg(
        long,
        env,
        default_value = "127.0.0.1:8081",
        value_parser = ip_address_and_port,
        value_name = "ADDRESS"
    )]
    pub(crate) admin_listen: SocketAddr,
}

#[derive(Debug, Args)]
pub(crate) struct HealthcheckArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Time to wait for the response
    #[arg(long, default_value_t = Seconds::new(2), value_parser = at_least_one, value_name = "DURATION")]
    pub(crate) timeout: Seconds,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Time after which to give up
    #[arg(long, default_value_t = Seconds::new(20), value_parser = at_least_one, value_name = "DURATION")]
    pub(crate) timeout: Seconds,
}

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Time after which to give up
    #[arg(long, default_value_t = Seconds::new(60), value_parser = at_least_one, value_name = "DURATION")]
    pub(crate) timeout: Seconds,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn serve(arguments: &[&str]) -> Result<ServeArgs, ExitError> {
        let required = [
            "sidecar",
            "serve",
            "--auth-server",
            "http://a:1/auth",
            "--app-id",
            "id",
        ];
        let cli = runtime::command_line::parse_words::<Cli>(required.iter().chain(arguments))?;
        match cli.command {
            Command::Serve(args) => Ok(*args),
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn the_declaration_is_consistent() {
        runtime::command_line::command::<Cli>().debug_assert();
    }

    #[test]
    fn every_setting_can_come_from_the_environment() {
        let command = runtime::command_line::command::<Cli>();
        let serve = command.find_subcommand("serve").unwrap();
        for flag in serve.get_arguments() {
            let name = flag.get_long().unwrap().to_uppercase().replace('-', "_");
            let variable = flag.get_env().unwrap().to_str().unwrap();
            assert_eq!(variable, format!("POSTERN_{name}"));
        }
    }

    #[test]
    fn the_effective_configuration_is_toml_without_the_secret() {
        let args = serve(&["--app-secret", "hush", "--public-path", "/a/**,/b"]).unwrap();
        let toml = toml::to_string(&args).unwrap();
        assert!(!toml.contains("hush") && !format!("{args:?}").contains("hush"));
        for line in [
            "listen = \"127.0.0.1:8080\"",
            "request-header-timeout = \"10s\"",
            "signing-type = \"rsa\"",
            "access-log = \"refusals\"",
            "public-path = [\"/a/**\", \"/b\"]",
            "leeway = \"30s\"",
        ] {
            assert!(toml.lines().any(|other| other == line), "{line}\n{toml}");
        }
    }
}
