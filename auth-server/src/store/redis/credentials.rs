//! Passwords and certificates of a Redis store, from files that are read again for each call.

use std::fmt;
use std::path::{Path, PathBuf};

use runtime::files::secret_file;
use runtime::tls::{CertificateFiles, trusted};
use zeroize::Zeroizing;

pub(crate) const CLIENT_CERTIFICATE: &str = "--store-client-cert";

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

/// The paths, and the other credentials settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CredentialFiles {
    pub(crate) password: Option<PathBuf>,
    pub(crate) ca: Option<PathBuf>,
    /// A chain and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
    pub(crate) sentinel_user: Option<String>,
    pub(crate) sentinel_password: Option<PathBuf>,
}

/// An unusable file with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{flag}: {problem}")]
pub(crate) struct CredentialsError {
    flag: &'static str,
    problem: String,
}

impl Credentials {
    /// Reads all files.
    ///
    /// # Errors
    /// [`CredentialsError`] for the first unusable file.
    pub(crate) fn read(files: CredentialFiles) -> Result<Self, CredentialsError> {
        Ok(Self {
            password: secret("--store-password-file", files.password.as_deref())?,
            ca: files.ca.as_deref().map(authorities).transpose()?,
            client: client_certificate(&files)?,
            sentinel_password: secret(
                "--store-sentinel-password-file",
                files.sentinel_password.as_deref(),
            )?,
            files,
        })
    }

    /// Returns the file of the client certificate, and its expiry in seconds since 1970.
    pub(crate) fn certificate(&self) -> Option<(PathBuf, i64)> {
        let (file, _) = self.files.client.as_ref()?;
        Some((file.clone(), self.client.as_ref()?.not_after))
    }

    pub(crate) fn is_for_redis(&self) -> bool {
        let passwords = self.password.is_some() || self.sentinel_password.is_some();
        let certificates = self.ca.is_some() || self.client.is_some();
        passwords || certificates || self.files.sentinel_user.is_some()
    }
}

impl CredentialFiles {
    /// Returns true if there is nothing to re-read.
    pub(crate) const fn are_missing(&self) -> bool {
        self.password.is_none()
            && self.ca.is_none()
            && self.client.is_none()
            && self.sentinel_password.is_none()
    }
}

fn secret(
    flag: &'static str,
    file: Option<&Path>,
) -> Result<Option<Zeroizing<String>>, CredentialsError> {
    file.map(secret_file::read)
        .transpose()
        .map_err(|error| invalid(flag, &error))
}

fn authorities(file: &Path) -> Result<Vec<u8>, CredentialsError> {
    trusted(file).map_err(|error| invalid("--store-ca", &error))
}

/// Loads the client certificate and checks that its key matches.
fn client_certificate(
    files: &CredentialFiles,
) -> Result<Option<CertificateFiles>, CredentialsError> {
    let client = files.client.as_ref();
    client
        .map(|(cert, key)| CertificateFiles::read(cert, key))
        .transpose()
        .map_err(|error| {
            let flag = error.setting(CLIENT_CERTIFICATE, "--store-client-key");
            invalid(flag, &error)
        })
}

fn invalid(flag: &'static str, problem: &dyn fmt::Display) -> CredentialsError {
    let problem = problem.to_string();
    CredentialsError { flag, problem }
}
