//! The command line of `application`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use postern_process::command_line::member;
use serde_json::Value;

use super::store::StoreArgs;
use crate::accounts::applications::AppId;
use crate::accounts::grants::{Audience, Scope, named_claim};

#[derive(Debug, Subcommand)]
pub(crate) enum ApplicationCommand {
    /// Register an application and print its generated secret, once
    Add {
        #[command(flatten)]
        application: ApplicationArgs,
        #[command(flatten)]
        grant: GrantArgs,
    },
    /// Make a secret that others hold already valid: register the application with it, or add it to
    /// the one that is; may be repeated
    Ensure {
        #[command(flatten)]
        application: ApplicationArgs,
        /// File that holds the secret: 32 or more random characters, which the application is given too
        #[arg(long, value_name = "FILE")]
        app_secret_file: PathBuf,
    },
    /// Print the registered applications, each as JSON on a line
    List(StoreArgs),
    /// Replace what tokens an application may obtain (client credentials, RFC 6749 §4.4)
    Grant {
        #[command(flatten)]
        application: ApplicationArgs,
        #[command(flatten)]
        grant: GrantArgs,
        /// Take everything away: the application fetches keys and obtains no token
        #[arg(long, conflicts_with_all = ["audience", "scope", "claim"])]
        none: bool,
    },
    /// Make another secret valid and print it, once; the one before it stays valid
    RotateSecret {
        #[command(flatten)]
        application: ApplicationArgs,
        /// Make no secret; end the validity of all but the newest, unless only one is valid
        #[arg(long)]
        drop_old: bool,
    },
    /// Take an application's registration away
    Remove(ApplicationArgs),
}

/// One application of a store.
#[derive(Debug, Args)]
pub(crate) struct ApplicationArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The application's id: 1 to 128 characters without white space
    #[arg(long, value_name = "ID")]
    pub(crate) app_id: AppId,
}

/// The tokens that an application may obtain.
#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// Audience of its tokens (`aud`), without which it obtains none; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = member::<Audience>)]
    pub(crate) audience: Vec<Audience>,
    /// Scope of its tokens: values with spaces between them, of which it may request a part
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Option<Scope>,
    /// Further claim of its tokens: NAME=TEXT, or NAME:=JSON for another value; repeatable
    #[arg(long, value_name = "CLAIM", value_parser = named_claim)]
    pub(crate) claim: Vec<(String, Value)>,
}
