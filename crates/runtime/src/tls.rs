//! TLS for a listening port: the two settings, their certificate, and its reload when the files
//! change.
//!
//! A TLS library gets the certificate of [`ServerCertificate`] at each handshake; the programs
//! accept the connections. [`http1`] is the configuration for a port that speaks HTTP/1.1.

mod certificate;
pub mod clients;
mod metrics;
mod reload;

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use serde::Serialize;

use self::certificate::roots;
pub use self::certificate::{
    CertificateError, CertificateFiles, ServerCertificate, authorities, expired, read_bounded,
    trusted,
};
pub use self::metrics::CertificateMetrics;
pub use self::reload::follow;
use crate::process::exit::ExitError;

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
            .map_err(|error| {
                let flag = error.setting("--tls-cert", "--tls-key");
                ExitError::Config(format!("{flag}: {error}"))
            })
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

/// Configures TLS 1.2 and 1.3 with `certificate` for every server name; clients present
/// a certificate of one of `authorities`, if there are any. They resume sessions without state in the server.
///
/// # Errors
/// [`ExitError::Software`] if the cryptographic library rejects its own defaults, or authorities
/// that [`authorities`] has not checked.
pub fn server(
    certificate: Arc<ServerCertificate>,
    authorities: Option<&[CertificateDer<'static>]>,
    protocols: &[&str],
) -> Result<Arc<ServerConfig>, ExitError> {
    let failed =
        |error: &dyn Display| ExitError::Software(format!("TLS cannot be set up: {error}"));
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| failed(&error))?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let roots = Arc::new(roots(authorities).map_err(|error| failed(&error))?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| failed(&error))?)
        }
    };
    let mut config = builder.with_cert_resolver(certificate);
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    config.ticketer = Ticketer::new().map_err(|error| failed(&error))?;
    Ok(Arc::new(config))
}
