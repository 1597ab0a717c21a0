//! The settings of `serve` and `check`: each is a flag, a `POSTERN_*` variable and a key of the
//! configuration file. The help has a heading for each group.

use clap::Args;
use postern_process::logs::subscriber::LogArgs;
use serde::Serialize;

use super::issuer_table::IssuerTable;
use super::key_args::KeyArgs;
use super::limit_args::{LimitArgs, StopArgs};
use super::listen_args::ListenArgs;
use super::log_args::AccessLogArgs;
use super::policy_args::RulesArgs;
use super::service_args::{ServiceArgs, UpstreamArgs};

/// The settings of `serve` and `check`. Serialised, they are the effective configuration.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) listening: ListenArgs,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) service: ServiceArgs,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) upstream: UpstreamArgs,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) keys: KeyArgs,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) rules: RulesArgs,

    #[arg(skip)]
    #[serde(skip)]
    pub(crate) issuers: Vec<IssuerTable>,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) stop: StopArgs,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) access: AccessLogArgs,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) logs: LogArgs,
}
