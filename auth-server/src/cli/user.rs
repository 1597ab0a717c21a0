//! The command line of `user`.

use clap::{Args, Subcommand};

use crate::grants::{NamedClaim, Scope};
use crate::users::UsersLocation;

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
    /// Require verification codes of a user (TOTP), and print the address for an authenticator, once
    SetTotp(UserTotpArgs),
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
    /// The user's login name
    #[arg(long, value_name = "ACCOUNT")]
    pub(crate) account: String,
    #[command(flatten)]
    pub(crate) password: UserPasswordArgs,
    /// The user's id for other services [default: a random one]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Display name [default: the account]
    #[arg(long, value_name = "NAME")]
    pub(crate) nick_name: Option<String>,
    /// Telephone number
    #[arg(long, value_name = "NUMBER")]
    pub(crate) telephone: Option<String>,
    /// Address of the user's picture
    #[arg(long, value_name = "URL")]
    pub(crate) avatar: Option<String>,
    /// User type [default: member]
    #[arg(long, value_name = "TYPE")]
    pub(crate) user_type: Option<String>,
    /// Tenant
    #[arg(long, value_name = "ID")]
    pub(crate) tenant_id: Option<String>,
    /// Grade
    #[arg(long, value_name = "GRADE")]
    pub(crate) grade: Option<String>,
    /// Role of the user's tokens, a member of the claim `roles`; repeatable
    #[arg(long, value_name = "ROLE", value_delimiter = ',')]
    pub(crate) role: Vec<String>,
    /// Scope of the user's tokens: values with spaces between them
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Option<Scope>,
    /// Further claim of the user's tokens: NAME=TEXT, or NAME:=JSON for another value; repeatable
    #[arg(long, value_name = "CLAIM")]
    pub(crate) claim: Vec<NamedClaim>,
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

#[derive(Debug, Args)]
pub(crate) struct UserTotpArgs {
    #[command(flatten)]
    pub(crate) user: UserAccountArgs,
    /// Name of this installation in the authenticator
    #[arg(long, value_name = "NAME", default_value = "Postern")]
    pub(crate) label: String,
    /// Let the user log in without codes again
    #[arg(long)]
    pub(crate) remove: bool,
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
