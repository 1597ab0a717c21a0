//! Passwords and certificates of a Redis store, from files that are read again for each connection.

use std::path::{Path, PathBuf};

use clap::Args;
use postern_process::files::secret_file;
use postern_transport::tls::peer::{PeerCertificates, PeerFiles};
use postern_transport::tls::peer_settings::PeerSettings;
use serde::Serialize;
use zeroize::Zeroizing;

/// The settings of certificates.
pub(super) const SETTINGS: PeerSettings = PeerSettings {
    ca: "--store-ca",
    certificate: "--store-client-cert",
    key: "--store-client-key",
};

#[derive(Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) files: CredentialFiles,
    /// Replaces the password in the address.
    pub(crate) password: Option<Zeroizing<String>>,
    pub(crate) tls: PeerCertificates,
    pub(crate) sentinel_password: Option<Zeroizing<String>>,
}

impl AsRef<PeerCertificates> for Credentials {
    fn as_ref(&self) -> &PeerCertificates {
        &self.tls
    }
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
        let certificate = files.store_client_cert.clone();
        let certificates = PeerFiles {
            settings: SETTINGS,
            ca: files.store_ca.clone(),
            identity: certificate.zip(files.store_client_key.clone()),
        };
        Ok(Self {
            password: secret(
                "--store-password-file",
                files.store_password_file.as_deref(),
            )?,
            tls: certificates.read().map_err(|error| error.to_string())?,
            sentinel_password: secret(
                "--store-sentinel-password-file",
                files.store_sentinel_password_file.as_deref(),
            )?,
            files,
        })
    }
}

fn secret(flag: &'static str, file: Option<&Path>) -> Result<Option<Zeroizing<String>>, String> {
    file.map(secret_file::read)
        .transpose()
        .map_err(|error| format!("{flag}: {error}"))
}
