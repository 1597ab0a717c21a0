//! The flags of every command that uses a store, and the command line of `store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use secrecy::SecretString;
use serde::Serialize;

use crate::store::redis::credentials::CredentialFiles;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy a file: store into a new file, also beside a running server
    Backup {
        /// The file to make; one that exists is not overwritten
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        store: StoreArgs,
    },
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct StoreArgs {
    /// Where keys and sessions live: file:DIR or memory for one server, redis://HOST for several
    ///
    /// memory forgets them. redis://[USER@]HOST[:PORT][/DB], redis+sentinel://[USER@]HOST,HOST/MASTER[/DB] or
    /// redis+cluster://[USER@]HOST,HOST, each with rediss instead of redis for TLS;
    /// redis+unix:///SOCKET. ?wait=N, not for a cluster: each commit needs N replicas
    #[arg(long, env, value_name = "STORE", default_value = "file:./data")]
    #[serde(skip)]
    pub(crate) store: String,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) access: CredentialFiles,
    /// Keys that encrypt private keys in the store, one a line: all decrypt
    ///
    /// The first encrypts a new store, and any store with keys reencrypt; the word clear in its place
    /// leaves them in clear. Each is 32 random bytes in base64 or hex, as openssl rand -base64 32 prints
    /// them
    #[arg(
        long,
        env,
        hide_env_values = true,
        // One key in 64 begins with a hyphen in base64url.
        allow_hyphen_values = true,
        value_name = "KEY",
        conflicts_with = "key_encryption_key_file"
    )]
    #[serde(skip)]
    pub(crate) key_encryption_key: Option<SecretString>,
    /// File of the keys that encrypt private keys in the store
    #[arg(long, env, value_name = "FILE")]
    pub(crate) key_encryption_key_file: Option<PathBuf>,
    /// Reject what is in clear in the store
    ///
    /// So write access to the store is not enough to plant one
    #[arg(long, env)]
    pub(crate) require_encrypted_keys: bool,
}
