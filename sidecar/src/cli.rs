//! The command line. Each doc comment is the help text of its command or flag.

pub(crate) mod explain_args;
pub(crate) mod issuer_members;
pub(crate) mod issuer_table;
pub(crate) mod key_args;
mod limit_args;
mod listen_args;
pub(crate) mod log_args;
pub(crate) mod policy_args;
pub(crate) mod rule_args;
mod serve_args;
pub(crate) mod service_args;

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand};
use postern_process::command_line::completions::CompletionsArgs;
use postern_process::command_line::seconds::{Seconds, at_least_one};
use postern_process::command_line::{ConfigFile, WithFile};
use postern_process::exit::ExitError;
use postern_transport::net::listener::ip_address_and_port;

use explain_args::ExplainArgs;
use issuer_table::{IssuerTable, tables_or_name};
use postern_contract::rules::Unmatched;
use rule_args::RuleTable;
use serde::Deserialize;
pub(crate) use serve_args::ServeArgs;

const EXAMPLES: &str = "\
Examples:
  sidecar serve --issuer-url https://id.example.com --audience orders \\
    --upstream http://127.0.0.1:3000
  sidecar check --online --config orders.toml
  sidecar explain -H 'Authorization: Bearer …' /orders/42";

const SERVE_EXAMPLES: &str = "\
Examples:
  Tokens of your identity provider, for a service on port 3000:
    sidecar serve --issuer-url https://id.example.com --audience orders \\
      --upstream http://127.0.0.1:3000
  Tokens of the auth server, and paths without a token:
    sidecar serve --auth-server http://127.0.0.1:9000/auth --app-id orders \\
      --app-secret-file secret --public-path '/static/**'
  Settings in a file, tried before:
    sidecar check --online --config orders.toml
    sidecar serve --config orders.toml";

/// Stands in front of one service and lets only requests with a valid access token through
#[derive(Debug, Parser)]
#[command(name = "sidecar", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl WithFile for Cli {
    const KEYS: &'static [&'static str] = &["rule", "default-rule", "issuer"];
    const SUMMARY: &'static str = "listen upstream issuer-url audience auth-server app-id app-secret-file public-path claim user-header";

    fn take(&mut self, file: &ConfigFile) -> Result<(), ExitError> {
        let settings = match &mut self.command {
            Command::Serve(settings) => &mut **settings,
            Command::Check(check) => &mut check.settings,
            _ => return Ok(()),
        };
        let only: FileOnly = file.read_only()?;
        settings.rules.rule = only.rule;
        settings.rules.default_rule = only.default_rule;
        settings.issuers = only.issuer;
        Ok(())
    }
}

/// The keys of the file alone.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", default)]
struct FileOnly {
    rule: Vec<RuleTable>,
    #[cfg_attr(test, schemars(with = "String", extend("enum" = ["token", "deny"])))]
    default_rule: Unmatched,
    #[serde(deserialize_with = "tables_or_name")]
    issuer: Vec<IssuerTable>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve until SIGTERM or SIGINT
    ///
    /// The files of settings, certificates, keys and the application's secret are read again when
    /// they change, and at SIGHUP
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// Check the configuration and print the effective settings without secrets
    Check(Box<CheckArgs>),
    /// Check that a running sidecar is ready
    Healthcheck(HealthcheckArgs),
    /// Have a running sidecar explain why it accepts or rejects a request
    ///
    /// It prints the request that the service would get, without sending it
    Explain(ExplainArgs),
    /// Take a running sidecar out of service
    ///
    /// It reports not ready and goes on serving; this command ends when no request is in flight
    Drain(DrainArgs),
    /// Wait until a sidecar is ready
    Wait(WaitArgs),
    /// Print the script by which a shell completes commands and flags
    Completions(CompletionsArgs),
}

/// The settings of `serve`, and the strictness of the check.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Try what a request needs: fetch the key, compare clocks, connect to the service
    ///
    /// Exit code 69 if something is unreachable, 78 if it is rejected. The service is probed on the
    /// pod's address too
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
    use ::tests::actors::programs::repository;
    use ::tests::tables::reference;
    use postern_process::command_line::settings;

    use super::*;

    #[test]
    fn the_declaration_is_consistent() {
        postern_process::command_line::command::<Cli>().debug_assert();
    }

    #[test]
    fn the_documents_say_what_the_command_line_takes() {
        let command = postern_process::command_line::command::<Cli>();
        reference::hold_tables(&command);
        let only = schemars::schema_for!(FileOnly).to_value();
        reference::hold_schema("sidecar", &reference::schema(&command, only));
    }

    #[test]
    fn the_documents_of_kubernetes_list_the_variables() {
        let command = postern_process::command_line::command::<Cli>();
        let serve = command.find_subcommand("serve").unwrap();
        let public = settings(serve).filter(|setting| !setting.is_hide_env_values_set());
        let mut variables: Vec<_> = public
            .filter_map(|setting| Some(format!("{}\n", setting.get_env()?.to_str()?)))
            .collect();
        variables.sort();
        let file = repository().join("k8s/tool/sidecar_variables.txt");
        reference::hold(&file, &variables.concat());
    }

    #[test]
    fn a_reader_of_the_short_help_alone_gets_a_protected_service() {
        let mut command = postern_process::command_line::command::<Cli>();
        let serve = command.find_subcommand_mut("serve").unwrap();
        let help = serve.render_help().to_string();
        assert!(help.lines().count() <= 45, "no screen:\n{help}");
        let joined = help.replace("\\\n", " ");
        let mut lines = joined.lines();
        let shortest = lines.find(|line| line.contains("serve --issuer-url"));
        let words = shortest.unwrap().split_whitespace();
        let cli = postern_process::command_line::parse_words::<Cli>(words).unwrap();
        let Command::Serve(settings) = cli.command else {
            unreachable!("the example serves")
        };
        assert!(crate::config::Config::new(&settings).is_ok());
    }
}
