//! Files of one side of TLS: the authorities to trust, and the certificate to present.

use std::path::PathBuf;

use rustls::pki_types::CertificateDer;

use super::certificate::{CertificateFiles, authorities, validity};
use super::expiry::End;
use super::peer_settings::PeerSettings;
use postern_process::exit::ExitError;

/// The files, as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerFiles {
    /// Their settings.
    pub settings: PeerSettings,
    /// Authorities that are trusted in place of the system's.
    pub ca: Option<PathBuf>,
    /// Certificate chain and private key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The contents of the files, compared to notice a change; never printed.
#[derive(Default, PartialEq, Eq)]
pub struct PeerCertificates {
    /// `None` for the authorities of the system.
    pub authorities: Option<Vec<CertificateDer<'static>>>,
    /// The certificate to present.
    pub identity: Option<CertificateFiles>,
    pub(super) ends: Vec<End>,
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
        let settings = &self.settings;
        let mut read = PeerCertificates::default();
        // All files are read before an error counts: each reading notes a file that was replaced under its mount.
        let trusted = self.ca.as_deref().map(authorities);
        let identity = self.identity.as_ref();
        let own = identity.map(|(chain, key)| CertificateFiles::read(settings, chain, key));
        if let Some(trusted) = trusted {
            let trusted =
                trusted.map_err(|error| ExitError::Config(format!("{}: {error}", settings.ca)))?;
            read.ends.extend(self.last_authority(&trusted));
            read.authorities = Some(trusted);
        }
        if let Some(own) = own {
            let own = read.identity.insert(own.map_err(ExitError::Config)?);
            // First: of several warnings the one about the own certificate counts.
            read.ends.insert(0, own.end.clone());
        }
        Ok(read)
    }

    /// Returns the end of the last authority: a bundle may keep former ones.
    fn last_authority(&self, authorities: &[CertificateDer<'_>]) -> Option<End> {
        let named = format!("{} {}", self.settings.ca, self.ca.as_ref()?.display());
        let times = authorities.iter().filter_map(validity);
        Some(End::new(named, times.max_by_key(|[_, end]| *end)?))
    }
}

impl PeerCertificates {
    /// Returns the warning of a certificate that has expired at `now`, in seconds since 1970, or will expire
    /// soon.
    #[must_use]
    pub fn ending(&self, now: i64) -> Option<String> {
        self.ends.iter().find_map(|end| end.warning(now))
    }

    /// Returns the end of the certificate, in seconds since 1970; 0 without one.
    pub(super) fn not_after(&self) -> i64 {
        match &self.identity {
            Some(identity) => identity.end.at,
            None => 0,
        }
    }

    /// Fails for a certificate that has expired at `now`, unless it is the former one: it must replace no
    /// other. A former certificate that has expired since does not prevent a change of other files.
    pub(super) fn may_replace(&self, former: &Self, now: i64) -> Result<(), String> {
        match &self.identity {
            Some(new) if self.identity != former.identity && new.end.at < now => {
                Err(new.end.warning(now).unwrap_or_default())
            }
            _ => Ok(()),
        }
    }
}
