//! Puts the sidecar into the pods of a Kubernetes cluster.
//!
//! Three commands use the same transformation: `inject` prints its result, `webhook` patches an object at
//! its admission, `lint` names the objects that it would change or reject. The container itself is
//! the container of the kustomize component, which is part of the program.

mod admission;
mod cli;
mod commands;
mod container;
mod inject;
mod manifest;
mod network;
mod pod;
mod yaml;

#[cfg(test)]
mod tests;

use std::process::ExitCode;

use postern_process::exit::{self, ExitError};
use postern_process::logs::subscriber;
use postern_process::{command_line, signals};
use postern_transport::tls;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    exit::finish(run().map_err(command_line::with_sources::<Cli>))
}

fn run() -> Result<(), ExitError> {
    signals::ignore_sighup()?;
    match command_line::parse::<Cli>()?.command {
        Command::Inject(args) => commands::inject::run(&args),
        Command::Lint(args) => commands::inject::run_lint(&args),
        Command::Webhook(args) => {
            tls::install_provider()?;
            let _logs = subscriber::init(args.logs.log_format, &args.logs.log_level)?;
            commands::webhook::run(&args)
        }
    }
}
