//! What it takes to use a Redis store besides its address: passwords and certificates, from files that
//! are read again for each call.

use std::fmt;
use std::path::{Path, PathBuf};

use runtime::secret_file;
use runtime::tls::{CertificateFiles, trusted};
use zeroize::Zeroizing;

/// The flag of the certificate that the store is shown.
pub(crate) const CLIENT_CERTIFICATE: &str = "--store-client-cert";

/// What stood in the files.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct StoreAccess {
    /// Where the rest was read.
    pub(crate) files: AccessFiles,
    /// In the place of the one in the address.
    pub(crate) password: Option<Zeroizing<String>>,
    /// Whom to trust, as PEM; `None`: whom the system trusts.
    pub(crate) ca: Option<Vec<u8>>,
    /// What to show.
    pub(crate) client: Option<ClientCertificate>,
    pub(crate) sentinel_password: Option<Zeroizing<String>>,
}

/// The files, and what else the settings say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AccessFiles {
    pub(crate) password: Option<PathBuf>,
    pub(crate) ca: Option<PathBuf>,
    /// A chain and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
    pub(crate) sentinel_user: Option<String>,
    pub(crate) sentinel_password: Option<PathBuf>,
}

/// A chain and its key, as PEM.
#[derive(PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Zeroizing<String>,
    /// In seconds since 1970.
    pub(crate) not_after: i64,
}

/// Which file cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{flag}: {problem}")]
pub(crate) struct AccessFault {
    flag: &'static str,
    problem: String,
}

impl StoreAccess {
    /// # Errors
    /// [`AccessFault`] for the first file that cannot be used.
    pub(crate) fn read(files: AccessFiles) -> Result<Self, AccessFault> {
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

    /// The file of the certificate that is shown, and when it ends, in seconds since 1970.
    pub(in crate::keys::store) fn certificate(&self) -> Option<(PathBuf, i64)> {
        let (file, _) = self.files.client.as_ref()?;
        Some((file.clone(), self.client.as_ref()?.not_after))
    }

    pub(in crate::keys::store) fn is_for_redis(&self) -> bool {
        let passwords = self.password.is_some() || self.sentinel_password.is_some();
        let certificates = self.ca.is_some() || self.client.is_some();
        passwords || certificates || self.files.sentinel_user.is_some()
    }
}

impl AccessFiles {
    /// Whether there is nothing that could change.
    pub(super) const fn are_none(&self) -> bool {
        self.password.is_none()
            && self.ca.is_none()
            && self.client.is_none()
            && self.sentinel_password.is_none()
    }
}

fn secret(
    flag: &'static str,
    file: Option<&Path>,
) -> Result<Option<Zeroizing<String>>, AccessFault> {
    file.map(secret_file::read)
        .transpose()
        .map_err(|error| fault(flag, &error))
}

fn authorities(file: &Path) -> Result<Vec<u8>, AccessFault> {
    trusted(file).map_err(|error| fault("--store-ca", &error))
}

/// Found right as a pair, as a server would show it.
fn client_certificate(files: &AccessFiles) -> Result<Option<ClientCertificate>, AccessFault> {
    let Some((cert, key)) = &files.client else {
        return Ok(None);
    };
    let files = CertificateFiles::read(cert, key).map_err(|error| {
        let flag = if error.path() == key {
            "--store-client-key"
        } else {
            CLIENT_CERTIFICATE
        };
        fault(flag, &error)
    })?;
    Ok(Some(ClientCertificate {
        chain: files.chain,
        key: files.key,
        not_after: files.not_after,
    }))
}

fn fault(flag: &'static str, problem: &dyn fmt::Display) -> AccessFault {
    let problem = problem.to_string();
    AccessFault { flag, problem }
}
