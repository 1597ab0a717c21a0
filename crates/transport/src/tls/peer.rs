//! TLS towards a server: the authorities to trust, and the certificate to present.

use std::path::PathBuf;

use rustls::pki_types::CertificateDer;

use super::certificate::{CertificateFiles, authorities, expired};
use postern_process::exit::ExitError;

/// The names of the settings, for errors and warnings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PeerSettings {
    /// Of the authorities.
    pub ca: &'static str,
    /// Of the chain.
    pub certificate: &'static str,
    /// Of its key.
    pub key: &'static str,
}

impl PeerSettings {
    /// Returns the names that failed connections need: no failure is about the key.
    #[must_use]
    pub const fn without_key(ca: &'static str, certificate: &'static str) -> Self {
        let key = "";
        Self {
            ca,
            certificate,
            key,
        }
    }
}

/// The files, as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerFiles {
    /// Their settings.
    pub settings: PeerSettings,
    /// Authorities that are trusted in place of the system's.
    pub ca: Option<PathBuf>,
    /// Certificate chain and private key, for a server that requires them.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The contents of the files, compared to notice a change; never printed.
#[derive(PartialEq, Eq)]
pub struct PeerCertificates {
    /// `None` for the authorities of the system.
    pub authorities: Option<Vec<CertificateDer<'static>>>,
    /// The certificate to present.
    pub identity: Option<CertificateFiles>,
}

impl PeerFiles {
    /// Returns true if no file is configured.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ca.is_none() && self.identity.is_none()
    }

    /// Returns the setting of the first configured file.
    #[must_use]
    pub const fn first_setting(&self) -> Option<&'static str> {
        match (&self.ca, &self.identity) {
            (Some(_), _) => Some(self.settings.ca),
            (None, Some(_)) => Some(self.settings.certificate),
            (None, None) => None,
        }
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`ExitError::Config`] that names the setting and the file.
    pub fn read(&self) -> Result<PeerCertificates, ExitError> {
        let PeerSettings {
            ca,
            certificate,
            key,
        } = self.settings;
        let authorities = self.ca.as_deref().map(authorities).transpose();
        let identity = self.identity.as_ref();
        let identity = identity.map(|(cert, key)| CertificateFiles::read(cert, key));
        Ok(PeerCertificates {
            authorities: authorities
                .map_err(|error| ExitError::Config(format!("{ca}: {error}")))?,
            identity: identity.transpose().map_err(|error| {
                ExitError::Config(format!("{}: {error}", error.setting(certificate, key)))
            })?,
        })
    }

    /// Returns the warning of a certificate among those `read` that has expired at `now`, in seconds
    /// since 1970.
    #[must_use]
    pub fn expired(&self, read: &PeerCertificates, now: i64) -> Option<String> {
        let (file, _) = self.identity.as_ref()?;
        let not_after = read.identity.as_ref()?.not_after;
        expired(self.settings.certificate, file, not_after, now)
    }

    /// Returns the error of an expired certificate that must not replace the one of `former`.
    #[must_use]
    pub fn may_not_replace(
        &self,
        former: &PeerCertificates,
        read: &PeerCertificates,
        now: i64,
    ) -> Option<String> {
        let next = read.identity.as_ref()?;
        let may_replace = next.may_replace(former.identity.as_ref(), now);
        self.expired(read, now).filter(|_| !may_replace)
    }
}
