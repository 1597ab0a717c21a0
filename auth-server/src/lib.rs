//! `auth-server`: issues signed access tokens, keeps the key pair they are signed with, and hands
//! out the half that verifies them. See `ARCHITECTURE.md` for the map.

mod accounts;
mod cli;
mod commands;
mod config;
mod http;
mod keys;
mod random;
mod rate_limit;
mod revocations;
mod server;
mod store;
mod telemetry;
mod tokens;

#[cfg(feature = "simulation")]
#[path = "../../tests/simulation/inside/auth_server.rs"]
pub mod simulation;

use std::process::ExitCode;
use std::time::Duration;

use postern_process::command_line::completions::print_completions;
use postern_process::exit::{ExitError, finish};
use postern_process::logs::subscriber::{self, LogFormat};
use postern_process::{command_line, signals};
use postern_transport::admin::healthcheck;
use postern_transport::tls;

use crate::cli::{Cli, Command, ServeArgs};

/// Number of worker threads. Two sign thousands of tokens a second (an RSA signature takes under half a
/// millisecond); more threads would cost memory on machines where this server idles.
const WORKERS: usize = 2;
/// Timeout of the health check, shorter than the few seconds that a probe's caller waits.
const HEALTHCHECK_TIMEOUT: Duration = Duration::from_secs(2);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the command line of this process.
#[must_use]
pub fn run_process() -> ExitCode {
    finish(run().map_err(command_line::with_sources::<Cli>))
}

fn run() -> Result<(), ExitError> {
    tls::install_provider()?;
    // SIGHUP is ignored before any file is read, which may take seconds.
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
            &[warnings, command_line::overridden_keys::<Cli>()].concat(),
        ),
        Command::Dev(args) => {
            let _logs = subscriber::init(LogFormat::Text, &args.log_level)?;
            block_on(commands::dev::run(&args))
        }
        Command::Check(args) => {
            subscriber::check(&args.settings.logs.log_level)?;
            block_on(commands::check::run(
                &args,
                [warnings, postern_transport::traces::warnings()].concat(),
                &command_line::overridden_keys::<Cli>(),
            ))
        }
        Command::Healthcheck(args) => healthcheck::ready(args.admin_listen, HEALTHCHECK_TIMEOUT),
        Command::Keys(command) => audited(commands::keys::run(&command)),
        Command::Revoke(args) => audited(commands::revoke::run(&args)),
        Command::Application(command) => audited(commands::application::run(&command)),
        Command::Token(command) => block_on(commands::token::run(&command)),
        Command::User(command) => commands::user::run(&command),
        Command::Store(command) => commands::store::run(&command),
        Command::Completions(args) => print_completions::<Cli>(&args),
    }
}

fn serve(args: &ServeArgs, warnings: &[String]) -> Result<(), ExitError> {
    let _logs = subscriber::init(args.logs.log_format, &args.logs.log_level)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    postern_transport::traces::install("postern-auth-server", env!("CARGO_PKG_VERSION"))?;
    block_on(server::serve(args))
}

/// Runs a command that logs what it changes.
fn audited(command: impl Future<Output = Result<(), ExitError>>) -> Result<(), ExitError> {
    let filter = "error,audit=info,store=warn";
    let _logs = subscriber::init(LogFormat::Text, filter)?;
    block_on(command)
}

fn block_on(work: impl Future<Output = Result<(), ExitError>>) -> Result<(), ExitError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .map_err(|error| ExitError::Software(format!("no runtime: {error}")))?;
    let outcome = runtime.block_on(work);
    // A hanging file system must not delay the exit.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    outcome
}
