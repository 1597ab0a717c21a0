//! The certificates that a port requests of its clients.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use serde::Serialize;
use x509_parser::parse_x509_certificate;

use super::certificate::roots;

/// The setting of both programs.
#[derive(Debug, Clone, Copy, Default, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ClientCertArgs {
    /// Request a certificate of each client, for tokens that are bound to it (RFC 8705)
    ///
    /// Any certificate counts, also a self-signed one: its token names it
    #[arg(long, env, value_enum, value_name = "MODE", requires = "tls_cert")]
    pub client_cert: Option<ClientCert>,
}

/// Which clients are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ClientCert {
    /// Those with a certificate.
    Required,
    /// All.
    Optional,
}

/// The certificates that are requested.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedCertificates {
    /// `None` if none is requested, or for every client where there are authorities.
    pub mode: Option<ClientCert>,
    /// The file of the authorities that have issued the certificates; without it any certificate counts.
    pub ca: Option<PathBuf>,
}

/// Returns the verifier of clients' certificates; `None` if no certificate is requested.
pub(super) fn verifier(
    mode: Option<ClientCert>,
    authorities: Option<&[CertificateDer<'static>]>,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let is_required = mode != Some(ClientCert::Optional);
    match (authorities, mode) {
        (None, None) => Ok(None),
        (None, Some(_)) => Ok(Some(Arc::new(AnyCertificate {
            is_required,
            algorithms: provider.signature_verification_algorithms,
        }))),
        (Some(authorities), _) => {
            let roots = Arc::new(roots(authorities).map_err(|error| error.to_string())?);
            let mut builder =
                WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
            if !is_required {
                builder = builder.allow_unauthenticated();
            }
            Ok(Some(builder.build().map_err(|error| error.to_string())?))
        }
    }
}

/// Verifies only that the client has the private key of its certificate: a token is bound to the certificate
/// as a whole, so the certificate needs no authority (RFC 8705 §2.2, §7.2).
#[derive(Debug)]
struct AnyCertificate {
    is_required: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // The key alone counts: the library rejects certificates of version 1, and extensions that
        // it does not know. For TLS 1.2 it has no such function.
        let (_, parsed) = parse_x509_certificate(certificate)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let key = SubjectPublicKeyInfoDer::from(parsed.public_key().raw);
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
