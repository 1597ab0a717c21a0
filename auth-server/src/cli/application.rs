//! The command line of `application`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ReasonArgs;
use super::store::StoreArgs;
use crate::applications::AppId;

#[derive(Debug, Subcommand)]
pub(crate) enum ApplicationCommand {
    /// Register an application and print its generated secret, once
    Add(ApplicationAddArgs),
    /// Make a secret that others hold already valid: register the application with it, or add it to
    /// the one that is; may be repeated
    Ensure(ApplicationEnsureArgs),
    /// Print the registered applications
    List(ApplicationListArgs),
    /// Make another secret valid and print it, once; the one before it stays valid
    RotateSecret(RotateSecretArgs),
    /// Take an application's registration away
    Remove(ApplicationRemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ApplicationListArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApplicationAddArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The application's id: 1 to 128 characters without white space
    #[arg(long, value_name = "ID")]
    pub(crate) app_id: AppId,
    #[command(flatten)]
    pub(crate) reason: ReasonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ApplicationEnsureArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The application's id: 1 to 128 characters without white space
    #[arg(long, value_name = "ID")]
    pub(crate) app_id: AppId,
    /// File that holds the secret: 32 or more random characters, which the application is given too
    #[arg(long, value_name = "FILE")]
    pub(crate) app_secret_file: PathBuf,
    #[command(flatten)]
    pub(crate) reason: ReasonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RotateSecretArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The application's id
    #[arg(long, value_name = "ID")]
    pub(crate) app_id: AppId,
    /// Make no secret; end the validity of all but the newest, unless only one is valid
    #[arg(long)]
    pub(crate) drop_old: bool,
    #[command(flatten)]
    pub(crate) reason: ReasonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ApplicationRemoveArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The application's id
    #[arg(long, value_name = "ID")]
    pub(crate) app_id: AppId,
    /// Remove it though none is left then, and every appId with any appSecret gets the key
    #[arg(long)]
    pub(crate) last: bool,
    #[command(flatten)]
    pub(crate) reason: ReasonArgs,
}
