//! The command line of `user`.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::accounts::grants::named_claim;
use crate::accounts::users::UsersLocation;
use crate::accounts::users::toml_schema::UserEntry;

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user; the password is read from the terminal
    Add(Box<UserAddArgs>),
    /// Print the users, each as JSON on a line
    List(UsersFileArgs),
    /// Ask for a new password of a user
    SetPassword {
        #[command(flatten)]
        user: UserAccountArgs,
        #[command(flatten)]
        password: UserPasswordArgs,
    },
    /// Keep a user from logging in; servers revoke the user's tokens when they read the file
    Disable(UserAccountArgs),
    /// Let a disabled user log in again
    Enable(UserAccountArgs),
    /// Remove a user
    Remove(UserAccountArgs),
}

#[derive(Debug, Args)]
pub(crate) struct UsersFileArgs {
    /// The file of users, as file:FILE
    #[arg(long, env, value_name = "USERS")]
    pub(crate) users: UsersLocation,
}

#[derive(Debug, Args)]
pub(crate) struct UserAddArgs {
    #[command(flatten)]
    pub(crate) file: UsersFileArgs,
    #[command(flatten)]
    pub(crate) entry: UserEntry,
    #[command(flatten)]
    pub(crate) password: UserPasswordArgs,
    /// The user's id for other services [default: a random one]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Further claim of the user's tokens: NAME=TEXT, or NAME:=JSON for another value; repeatable
    #[arg(long, value_name = "CLAIM", value_parser = named_claim)]
    pub(crate) claim: Vec<(String, Value)>,
}

#[derive(Debug, Args)]
pub(crate) struct UserPasswordArgs {
    /// Read the password from the first line of standard input instead of asking for it
    #[arg(long)]
    pub(crate) password_stdin: bool,
    /// Accept a password of fewer than 8 characters
    #[arg(long)]
    pub(crate) allow_short: bool,
}

/// One user of the file.
#[derive(Debug, Args)]
pub(crate) struct UserAccountArgs {
    #[command(flatten)]
    pub(crate) file: UsersFileArgs,
    /// The user's account
    #[arg(long, value_name = "ACCOUNT")]
    pub(crate) account: String,
}
