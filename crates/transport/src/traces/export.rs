//! The way of spans to the collector: OTLP over HTTP, from the thread in which the SDK collects spans.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as Exporter};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use reqwest::blocking::{Client, ClientBuilder};
use reqwest::{Certificate, redirect};

use super::environment::Collector;
use crate::tls::failure::with_causes;
use crate::tls::peer_settings::PeerSettings;
use crate::tls::trusted;
use postern_process::logs::once_a_minute::OnceAMinute;
use postern_process::logs::sanitize::LogText;

/// The settings that errors name.
const SETTINGS: PeerSettings =
    PeerSettings::without_key("OTEL_EXPORTER_OTLP_CERTIFICATE", "a collector gets none");

postern_process::metrics! {
    /// Metrics of the export.
    pub(super) struct ExportMetrics {
        /// Spans that were recorded
        pub(super) spans_recorded: Counter,
        /// Spans that the collector has taken: the others wait, or are lost
        spans_exported: Counter,
    }
}

/// An exporter whose results are counted and logged. The SDK's own log lines are compiled out, because they
/// hold the headers for the collector.
#[derive(Debug)]
pub(super) struct CountedExporter {
    exporter: SpanExporter,
    /// The cause of the last failed request.
    cause: Cause,
    is_grpc_port: bool,
    metrics: ExportMetrics,
    /// Time of the last logged failure.
    logged: Mutex<OnceAMinute>,
}

impl CountedExporter {
    /// Builds the exporter, outside of any runtime.
    ///
    /// # Errors
    /// A file or a variable that cannot be used.
    pub(super) fn new(collector: &Collector, metrics: ExportMetrics) -> Result<Self, String> {
        let unusable = |error| format!("no spans are exported: {error}");
        let cause = Cause::default();
        let client = ObservedClient {
            client: client(collector).map_err(unusable)?,
            cause: Arc::clone(&cause),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        Ok(Self {
            exporter,
            cause,
            is_grpc_port: collector.is_grpc_port,
            metrics,
            logged: Mutex::default(),
        })
    }
}

impl Exporter for CountedExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let exported = self.exporter.export(batch).await;
        match &exported {
            Ok(()) => {
                self.metrics.spans_exported.inc_by(spans);
            }
            Err(error) if self.logged.lock().is_due(Instant::now()) => {
                // The exporter's own error does not name the cause, which the HTTP client has left here.
                let cause = self.cause.lock().take();
                let mut error = cause.unwrap_or_else(|| LogText(&error.to_string()).to_string());
                if self.is_grpc_port {
                    error += "; 4317 is the port for gRPC, 4318 for HTTP";
                }
                tracing::warn!(spans, error, "spans were not exported");
            }
            Err(_) => {}
        }
        exported
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

type Cause = Arc<Mutex<Option<String>>>;

/// A client that keeps the cause of a failure, because the SDK reports every failure as a "network error".
#[derive(Debug)]
struct ObservedClient {
    client: Client,
    cause: Cause,
}

#[async_trait]
impl HttpClient for ObservedClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.client.send_bytes(request).await;
        let cause = sent.as_ref().err();
        // Set without an error too, so that a later failure does not get this cause.
        *self.cause.lock() = cause.map(|error| with_causes(error.as_ref(), &SETTINGS));
        sent
    }
}

/// Builds a client that follows no redirect, and takes no proxy from the environment.
fn client(collector: &Collector) -> Result<Client, String> {
    let mut client = Client::builder()
        .timeout(collector.timeout)
        .redirect(redirect::Policy::none())
        .no_proxy();
    if let Some(file) = &collector.certificate {
        client = trusting(client, file)?;
    } else if !collector.is_https {
        // Without TLS the system's certificates need not be loaded.
        client = client.tls_certs_only([]);
    }
    client.build().map_err(|error| error.to_string())
}

fn trusting(client: ClientBuilder, file: &Path) -> Result<ClientBuilder, String> {
    let unusable = |error: &dyn Display| format!("OTEL_EXPORTER_OTLP_CERTIFICATE {error}");
    let pem = trusted(file).map_err(|error| unusable(&error))?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| unusable(&error))?;
    Ok(client.tls_certs_only(certificates))
}
