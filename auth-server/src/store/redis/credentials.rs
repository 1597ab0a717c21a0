//! Passwords and certificates of a Redis store, from files that are read again for each connection.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use postern_process::files::secret_file;
use postern_transport::tls::peer::PeerSettings;
use postern_transport::tls::{CertificateFiles, trusted};
use serde::Serialize;
use zeroize::Zeroizing;

pub(crate) const CLIENT_CERTIFICATE: &str = "--store-client-cert";
/// The settings of certificates.
pub(super) const SETTINGS: PeerSettings =
    PeerSettings::without_key("--store-ca", CLIENT_CERTIFICATE);

#[derive(Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) files: CredentialFiles,
    /// Replaces the password in the address.
    pub(crate) password: Option<Zeroizing<String>>,
    /// Trusted authorities as PEM; `None` for those of the system.
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) client: Option<CertificateFiles>,
    pub(crate) sentinel_password: Option<Zeroizing<String>>,
}

/// The paths, and the other settings of credentials, as flags have them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct CredentialFiles {
    /// File of the password of the redis store; read again for each connection
    #[arg(long, env, value_name = "FILE")]
    pub(crate) store_password_file: Option<PathBuf>,
    /// PEM file of the authorities for a rediss store [default: the system's]
    ///
    /// Read again for each connection
    #[arg(long, env, value_name = "FILE")]
    pub(crate) store_ca: Option<PathBuf>,
    /// PEM file of the client certificate for a rediss store
    ///
    /// Its issuers after it; read again for each connection
    #[arg(long, env, value_name = "FILE", requires = "store_client_key")]
    pub(crate) store_client_cert: Option<PathBuf>,
    /// PEM file of its private key, not encrypted
    ///
    /// Read again for each connection
    #[arg(long, env, value_name = "FILE", requires = "store_client_cert")]
    pub(crate) store_client_key: Option<PathBuf>,
    /// User at the Sentinels themselves
    ///
    /// The one in the address is for the servers they watch
    #[arg(long, env, value_name = "USER")]
    pub(crate) store_sentinel_user: Option<String>,
    /// File of the password at the Sentinels; read again for each connection
    #[arg(long, env, value_name = "FILE")]
    pub(crate) store_sentinel_password_file: Option<PathBuf>,
}

impl Credentials {
    /// Reads all files.
    ///
    /// # Errors
    /// One line that names the flag of the first unusable file.
    pub(crate) fn read(files: CredentialFiles) -> Result<Self, String> {
        Ok(Self {
            password: secret(
                "--store-password-file",
                files.store_password_file.as_deref(),
            )?,
            ca: files
                .store_ca
                .as_deref()
                .map(trusted)
                .transpose()
                .map_err(|error| invalid("--store-ca", &error))?,
            client: client_certificate(&files)?,
            sentinel_password: secret(
                "--store-sentinel-password-file",
                files.store_sentinel_password_file.as_deref(),
            )?,
            files,
        })
    }

    /// Returns the file of the client certificate, and its expiry in seconds since 1970.
    pub(crate) fn certificate(&self) -> Option<(PathBuf, i64)> {
        let file = self.files.store_client_cert.as_ref()?;
        Some((file.clone(), self.client.as_ref()?.not_after))
    }
}

fn secret(flag: &'static str, file: Option<&Path>) -> Result<Option<Zeroizing<String>>, String> {
    file.map(secret_file::read)
        .transpose()
        .map_err(|error| invalid(flag, &error))
}

/// Loads the client certificate and checks that its key matches.
fn client_certificate(files: &CredentialFiles) -> Result<Option<CertificateFiles>, String> {
    let client = files.store_client_cert.as_ref();
    client
        .zip(files.store_client_key.as_ref())
        .map(|(cert, key)| CertificateFiles::read(cert, key))
        .transpose()
        .map_err(|error| {
            let flag = error.setting(CLIENT_CERTIFICATE, "--store-client-key");
            invalid(flag, &error)
        })
}

fn invalid(flag: &str, problem: &dyn fmt::Display) -> String {
    format!("{flag}: {problem}")
}
