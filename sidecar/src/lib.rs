//! Stands in front of one unmodified service and lets only requests with a valid access token
//! through.

mod admin;
mod cli;
mod commands;
mod config;
mod decision;
mod discovery;
mod downstream;
mod exchange;
mod identity;
mod issuers;
mod server;
mod telemetry;
mod upstream;

#[cfg(feature = "simulation")]
#[path = "../../tests/simulation/inside/sidecar.rs"]
pub mod simulation;

use std::process::ExitCode;

use postern_process::command_line::completions::print_completions;
use postern_process::exit::{self, ExitError};
use postern_process::{command_line, signals};
use postern_transport::admin::healthcheck;
use postern_transport::tls;

use crate::cli::{Cli, Command, ServeArgs};
use crate::config::Config;

/// Runs the command line of this process.
#[must_use]
pub fn run_process() -> ExitCode {
    exit::finish(run().map_err(command_line::with_sources::<Cli>))
}

fn run() -> Result<(), ExitError> {
    // First: files are read before the ports open, which may take seconds.
    signals::ignore_sighup()?;
    let command = command_line::parse::<Cli>()?.command;
    let warnings = command_line::unknown_variables::<Cli>();
    if !matches!(command, Command::Serve(_) | Command::Check(_)) {
        command_line::warn(&warnings);
        command_line::warn(&command_line::exposed_secrets::<Cli>());
    }
    match command {
        Command::Serve(args) => serve(
            &args,
            [warnings, command_line::overridden_keys::<Cli>()].concat(),
        ),
        Command::Check(args) => {
            tls::install_provider()?;
            let warnings = [warnings, postern_transport::traces::warnings()].concat();
            postern_process::logs::subscriber::check(&log_filter(&args.settings.logs.log_level))?;
            commands::check::run(&args, warnings, &command_line::overridden_keys::<Cli>())
        }
        Command::Healthcheck(args) => {
            healthcheck::ready(args.admin.admin_listen, args.timeout.duration())
        }
        Command::Explain(args) => commands::explain::run(&args),
        Command::Drain(args) => {
            commands::drain::until_drained(args.admin.admin_listen, args.timeout.duration())
        }
        Command::Wait(args) => {
            commands::wait::until_ready(args.admin.admin_listen, args.timeout.duration())
        }
        Command::Completions(args) => print_completions::<Cli>(&args),
    }
}

fn serve(args: &ServeArgs, warnings: Vec<String>) -> Result<(), ExitError> {
    // Before Pingora installs ring's.
    tls::install_provider()?;
    let _logs = postern_process::logs::subscriber::init(
        args.logs.log_format,
        &log_filter(&args.logs.log_level),
    )?;
    postern_transport::traces::install("postern-sidecar", env!("CARGO_PKG_VERSION"))?;
    let files = server::reload::file_states::files_of(args);
    let config = Config::new(args)?;
    for warning in warnings.into_iter().chain(config.warnings_at_the_start()) {
        tracing::warn!("{warning}");
    }
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = %args.listening.listen,
        admin_listen = %args.listening.admin_listen,
        upstream = %config.upstream.address,
        keys_from = config.keys_from(),
        "starting"
    );
    server::build::serve(config, files)
}

/// Silences libraries that log each step of their start at info. The requested filter comes last and
/// can enable them.
fn log_filter(requested: &str) -> String {
    format!("pingora_core=warn,tokio_cron_scheduler=warn,{requested}")
}
