//! TLS for a listening port: the two settings, their certificate, and its reload when the files
//! change.
//!
//! A TLS library gets the certificate of [`ServerCertificate`] at each handshake; the programs
//! accept the connections. [`http1`] is the configuration for a port that speaks HTTP/1.1.

mod certificate;
mod metrics;
mod reload;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::version::{TLS12, TLS13};
use serde::Serialize;

pub use self::certificate::{
    CertificateError, CertificateFiles, ServerCertificate, expired, read_bounded, trusted,
};
pub use self::metrics::CertificateMetrics;
pub use self::reload::follow;
use crate::exit::ExitError;

/// The TLS settings of a server, alike in both programs.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TlsArgs {
    /// File of the certificate to serve TLS with: PEM, the server's own first, then its issuers;
    /// followed when it changes
    #[arg(long, env, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// File of the certificate's private key: PEM, not encrypted
    #[arg(long, env, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Reads and checks the configured certificate; `None` for a port without TLS.
    ///
    /// An expired one is not a failure: [`expired`] is the warning.
    ///
    /// # Errors
    /// [`ExitError::Config`] naming the flag and the file.
    pub fn certificate(&self) -> Result<Option<Arc<ServerCertificate>>, ExitError> {
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        ServerCertificate::open(cert.clone(), key.clone())
            .map(|certificate| Some(Arc::new(certificate)))
            .map_err(|fault| ExitError::Config(format!("{}: {fault}", flag_of(&fault, key))))
    }
}

fn flag_of(fault: &CertificateError, key: &Path) -> &'static str {
    if fault.path() == key {
        "--tls-key"
    } else {
        "--tls-cert"
    }
}

/// Configures TLS 1.2 and 1.3 for HTTP/1.1 with `certificate` for every server name. Clients resume
/// sessions without state in the server.
///
/// # Errors
/// [`ExitError::Software`] if the cryptographic library rejects its own defaults.
pub fn http1(certificate: Arc<ServerCertificate>) -> Result<Arc<ServerConfig>, ExitError> {
    let refused = |error| ExitError::Software(format!("TLS cannot be set up: {error}"));
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(refused)?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer = Ticketer::new().map_err(refused)?;
    Ok(Arc::new(config))
}
