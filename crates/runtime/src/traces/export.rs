//! The way of spans to the collector: OTLP over HTTP, from the thread in which the SDK collects
//! them.

use std::fmt::Display;
use std::path::Path;
use std::time::Instant;

use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as Exporter};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use reqwest::blocking::{Client, ClientBuilder};
use reqwest::{Certificate, redirect};

use super::environment::Collector;
use crate::logs::once_a_minute::OnceAMinute;
use crate::logs::sanitize::LogText;
use crate::process::exit::ExitError;
use crate::tls::trusted;

crate::metrics! {
    /// Metrics of the export.
    pub(super) struct ExportMetrics {
        /// Spans that were recorded
        pub(super) spans_recorded: Counter,
        /// Spans that the collector has taken: the others wait, or are lost
        spans_exported: Counter,
    }
}

/// An exporter whose results are counted and logged. The SDK's own lines are compiled out: they hold
/// the headers for the collector.
#[derive(Debug)]
pub(super) struct CountedExporter {
    exporter: SpanExporter,
    metrics: ExportMetrics,
    /// The last failure.
    logged: Mutex<OnceAMinute>,
}

impl CountedExporter {
    /// Builds the exporter, outside of any runtime.
    ///
    /// # Errors
    /// [`ExitError::Config`] for a file or a variable that cannot be used.
    pub(super) fn new(collector: &Collector, metrics: ExportMetrics) -> Result<Self, ExitError> {
        let unusable = |error| ExitError::Config(format!("the export of spans: {error}"));
        let client = client(collector).map_err(unusable)?;
        let builder = SpanExporter::builder().with_http().with_http_client(client);
        let built = builder.build().map_err(|error| unusable(error.to_string()));
        Ok(Self {
            exporter: built?,
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
                let error = error.to_string();
                tracing::warn!(spans, error = %LogText(&error), "spans were not exported");
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

/// Builds a client that the environment leads nowhere else.
fn client(collector: &Collector) -> Result<Client, String> {
    let client = Client::builder()
        .timeout(collector.timeout)
        .redirect(redirect::Policy::none())
        .no_proxy();
    let client = match &collector.certificate {
        Some(file) => trusting(client, file)?,
        None if collector.is_https => client,
        // Avoids loading the system's certificates.
        None => client.tls_certs_only([]),
    };
    client.build().map_err(|error| error.to_string())
}

fn trusting(client: ClientBuilder, file: &Path) -> Result<ClientBuilder, String> {
    let unusable = |error: &dyn Display| format!("OTEL_EXPORTER_OTLP_CERTIFICATE {error}");
    let pem = trusted(file).map_err(|error| unusable(&error))?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| unusable(&error))?;
    Ok(client.tls_certs_only(certificates))
}
