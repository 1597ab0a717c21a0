//! The flags of every command that uses a store, and the command line of `store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use secrecy::SecretString;
use serde::Serialize;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy a file: store into a new file, also beside a running server
    Backup(StoreBackupArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StoreBackupArgs {
    /// The file to make; one that exists is not overwritten
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct StoreArgs {
    /// Where the keys live: file:DIR for one server, memory for one that forgets them; for several redis://[USER@]HOST[:PORT][/DB],
    /// redis+sentinel://[USER@]HOST,HOST/MASTER[/DB] or redis+cluster://[USER@]HOST,HOST, each with
    /// rediss instead of redis for TLS; redis+unix:///SOCKET
    #[arg(long, env, value_name = "STORE", default_value = "file:./data")]
    #[serde(skip)]
    pub(crate) store: String,
    /// File holding the password of the redis store; read again for each connection
    #[arg(long, env, value_name = "FILE")]
    pub(crate) store_password_file: Option<PathBuf>,
    /// File of the certificate authorities for a rediss store: PEM, read again for
    /// each connection [default: the system's]
    #[arg(long, env, value_name = "FILE")]
    pub(crate) store_ca: Option<PathBuf>,
    /// File of the client certificate for a rediss store: PEM, its issuers after it; read again for each
    /// connection
    #[arg(long, env, value_name = "FILE", requires = "store_client_key")]
    pub(crate) store_client_cert: Option<PathBuf>,
    /// File of that certificate's private key: PEM, not encrypted; read again for each connection
    #[arg(long, env, value_name = "FILE", requires = "store_client_cert")]
    pub(crate) store_client_key: Option<PathBuf>,
    /// User at the Sentinels themselves; the one in the address is for the servers they watch
    #[arg(long, env, value_name = "USER")]
    pub(crate) store_sentinel_user: Option<String>,
    /// File holding the password at the Sentinels themselves; read again for each connection
    #[arg(long, env, value_name = "FILE")]
    pub(crate) store_sentinel_password_file: Option<PathBuf>,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) encryption: EncryptionArgs,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct EncryptionArgs {
    /// Keys that encrypt private keys in the store, one a line: the first encrypts, all decrypt; each 32
    /// random bytes in base64 or hex, as openssl rand -base64 32 prints them. The word clear in place of
    /// the first: new values are not encrypted
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
    /// File that holds these keys
    #[arg(long, env, value_name = "FILE")]
    pub(crate) key_encryption_key_file: Option<PathBuf>,
    /// Reject private keys in clear, and records of applications that the key-encryption key does not
    /// authenticate, so that write access to the store is not enough to plant one
    #[arg(long, env)]
    pub(crate) require_encrypted_keys: bool,
}
