//! The way of an ended span: into a bounded queue, from there in batches to the collector.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter as _, SpanProcessor};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::settings::Settings;
use super::transport::exporter;
use crate::logs::once_a_minute::OnceAMinute;
use crate::logs::sanitize::LogText;
use crate::metrics::{Label, counters};
use crate::process::exit::ExitError;

/// Retries of the exporter included.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(30);

const QUEUE_FULL: Label = [("reason", "queue_full")];
const EXPORT_FAILED: Label = [("reason", "export_failed")];

crate::metrics! {
    /// Metrics of the export.
    pub(super) struct ExportMetrics {
        /// Spans that the collector has taken
        spans_exported: Counter,
        /// Spans that were lost, by reason: queue_full, export_failed
        spans_dropped: Family<Label, Counter> = counters([QUEUE_FULL, EXPORT_FAILED]),
    }
}

/// A message to the export.
#[derive(Debug)]
pub(super) enum Message {
    Span(Box<SpanData>),
    /// Export all before, then confirm.
    Flush(oneshot::Sender<()>),
}

/// The begin of the queue.
#[derive(Debug)]
pub(super) struct Queue {
    messages: mpsc::Sender<Message>,
    metrics: ExportMetrics,
}

impl Queue {
    pub(super) const fn new(messages: mpsc::Sender<Message>, metrics: ExportMetrics) -> Self {
        Self { messages, metrics }
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    /// Never waits: it runs in the request.
    fn on_end(&self, span: SpanData) {
        let message = Message::Span(Box::new(span));
        if self.messages.try_send(message).is_err() {
            self.metrics.spans_dropped.get_or_create(&QUEUE_FULL).inc();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The work that exports the spans.
#[derive(Debug)]
pub struct Export {
    settings: Settings,
    resource: Resource,
    messages: mpsc::Receiver<Message>,
    metrics: ExportMetrics,
}

impl Export {
    /// Checks that the exporter can be built.
    ///
    /// # Errors
    /// [`ExitError::Config`] for files or an endpoint that cannot be used.
    pub(super) fn new(
        settings: Settings,
        resource: Resource,
        messages: mpsc::Receiver<Message>,
        metrics: ExportMetrics,
    ) -> Result<Self, ExitError> {
        let built = std::thread::scope(|scope| {
            // A thread of its own: the caller may be within a runtime.
            let building = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(|error| error.to_string())?;
                let built = runtime.block_on(async { exporter(&settings, &resource) });
                built.map(drop).map_err(|error| error.to_string())
            });
            building
                .join()
                .unwrap_or_else(|_| Err("it panicked".to_owned()))
        });
        built.map_err(|error| ExitError::Config(format!("the export of spans: {error}")))?;
        Ok(Self {
            settings,
            resource,
            messages,
            metrics,
        })
    }

    /// Exports spans until the program ends.
    ///
    /// # Errors
    /// When the exporter cannot be built any more.
    pub async fn run(self) -> Result<Infallible, String> {
        let exporter =
            exporter(&self.settings, &self.resource).map_err(|error| error.to_string())?;
        let mut batches = Batches {
            exporter,
            messages: self.messages,
            metrics: self.metrics,
            logged: OnceAMinute::default(),
        };
        loop {
            batches.next(&self.settings).await;
        }
    }
}

struct Batches {
    exporter: SpanExporter,
    messages: mpsc::Receiver<Message>,
    metrics: ExportMetrics,
    /// The last failure.
    logged: OnceAMinute,
}

impl Batches {
    /// Collects and exports one batch.
    async fn next(&mut self, settings: &Settings) {
        let mut batch = Vec::new();
        let mut until = None;
        let flushed = loop {
            let delay = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                message = self.messages.recv() => match message {
                    Some(Message::Span(span)) => {
                        batch.push(*span);
                        until.get_or_insert_with(|| Instant::now() + settings.delay);
                        if batch.len() >= settings.batch {
                            break None;
                        }
                    }
                    Some(Message::Flush(done)) => break Some(done),
                    None => pending().await,
                },
                () = delay => break None,
            }
        };
        self.export(batch).await;
        if let Some(done) = flushed {
            let _ = done.send(());
        }
    }

    async fn export(&mut self, batch: Vec<SpanData>) {
        if batch.is_empty() {
            return;
        }
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let exported = self.exporter.export(batch);
        let error = match timeout_at(Instant::now() + EXPORT_TIMEOUT, exported).await {
            Ok(Ok(())) => {
                self.metrics.spans_exported.inc_by(count);
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it takes too long".to_owned(),
        };
        self.metrics
            .spans_dropped
            .get_or_create(&EXPORT_FAILED)
            .inc_by(count);
        if self.logged.is_due(Instant::now().into_std()) {
            tracing::warn!(spans = count, error = %LogText(&error), "spans were not exported");
        }
    }
}
