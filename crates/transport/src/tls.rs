//! TLS: certificates in files, for a listening port and towards other servers; changed files are followed.

pub mod certificate;
mod client_certificates;
pub(crate) mod expiry;
pub mod failure;
pub mod first_bytes;
pub mod followed;
mod metrics;
pub mod peer;
pub mod peer_settings;
mod server;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use rustls::crypto::aws_lc_rs::default_provider;
use serde::Serialize;

pub use self::certificate::{CertificateFiles, trusted};
pub use self::client_certificates::{ClientCert, ClientCertArgs, RequestedCertificates};
pub use self::metrics::CertificateMetrics;
use self::peer::PeerFiles;
pub use self::server::{HTTP_1, HTTP_2_OR_1, ServerTls};
use postern_process::exit::ExitError;

/// The TLS settings of a server, alike in both programs.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TlsArgs {
    /// PEM file of the certificate to serve TLS with
    ///
    /// The server's own first, then its issuers; followed when it changes
    #[arg(long, env, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file of its private key, not encrypted
    #[arg(long, env, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Reads and checks the certificate of a port, and the authorities of its clients; `None` for a port
    /// without TLS. An expired certificate is not a failure.
    ///
    /// # Errors
    /// [`ExitError::Config`] naming the flag and the file.
    pub fn server(
        &self,
        clients: RequestedCertificates,
        protocols: &'static [&'static str],
    ) -> Result<Option<Arc<ServerTls>>, ExitError> {
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let files = PeerFiles {
            settings: server::SETTINGS,
            ca: clients.ca,
            identity: Some((cert.clone(), key.clone())),
        };
        ServerTls::open(files, clients.mode, protocols).map(|tls| Some(Arc::new(tls)))
    }
}

/// Makes aws-lc-rs the cryptographic library of the process, before another one is chosen.
///
/// # Errors
/// [`ExitError::Software`] after the first call.
pub fn install_provider() -> Result<(), ExitError> {
    default_provider()
        .install_default()
        .map_err(|_| ExitError::Software("a TLS provider is installed already".to_owned()))
}
