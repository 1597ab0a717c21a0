//! The exporter of OTLP: over HTTP with hyper, over gRPC with tonic, both with rustls.

use std::path::Path;

use hyper_rustls::HttpsConnectorBuilder;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::settings::{Protocol, Settings};

/// The reason why there is no exporter.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransportError {
    #[error("OTEL_EXPORTER_OTLP_CERTIFICATE: {0}")]
    Certificate(String),
    #[error("the system's certificates cannot be read: {0}")]
    System(std::io::Error),
    #[error("{0}")]
    Exporter(String),
}

/// Builds the exporter. Within a runtime, which carries the connection of gRPC.
pub(super) fn exporter(
    settings: &Settings,
    resource: &Resource,
) -> Result<SpanExporter, TransportError> {
    let mut exporter = match settings.protocol {
        Protocol::Http => over_http(settings)?,
        Protocol::Grpc => over_grpc(settings)?,
    };
    exporter.set_resource(resource);
    Ok(exporter)
}

fn over_http(settings: &Settings) -> Result<SpanExporter, TransportError> {
    let connector = HttpsConnectorBuilder::new();
    let connector = match &settings.certificate {
        Some(file) => connector.with_tls_config(trusting(file)?),
        None => connector
            .with_provider_and_native_roots(aws_lc_rs::default_provider())
            .map_err(TransportError::System)?,
    };
    let connector = connector.https_or_http().enable_http1().build();
    let client = HyperClient::new(connector, settings.timeout, None);
    let builder = SpanExporter::builder().with_http().with_http_client(client);
    builder.build().map_err(failed)
}

fn over_grpc(settings: &Settings) -> Result<SpanExporter, TransportError> {
    let tls = match &settings.certificate {
        Some(file) => {
            let pem = std::fs::read(file).map_err(|error| unreadable(file, &error))?;
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
        }
        None => ClientTlsConfig::new().with_enabled_roots(),
    };
    let builder = SpanExporter::builder().with_tonic().with_tls_config(tls);
    builder.build().map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> TransportError {
    TransportError::Exporter(error.to_string())
}

fn unreadable(file: &Path, error: &dyn std::error::Error) -> TransportError {
    TransportError::Certificate(format!("'{}': {error}", file.display()))
}

fn trusting(file: &Path) -> Result<ClientConfig, TransportError> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(file);
    for certificate in certificates.map_err(|error| unreadable(file, &error))? {
        let certificate = certificate.map_err(|error| unreadable(file, &error))?;
        roots
            .add(certificate)
            .map_err(|error| unreadable(file, &error))?;
    }
    Ok(ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth())
}
