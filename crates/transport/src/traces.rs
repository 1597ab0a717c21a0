//! Spans of OpenTelemetry, exported over OTLP as its standard variables configure; off without
//! them.
//!
//! There is one tracer for the program, as there is one log. The SDK collects ended spans in a bounded queue
//! and exports them in a thread of its own: a span that finds the queue full is lost, so an unreachable
//! collector costs a request nothing.

mod environment;
mod export;
pub mod request_span;

use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
pub use opentelemetry::Value;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{
    Span as _, SpanContext, SpanKind, Status, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracer, SdkTracerProvider};
use prometheus_client::registry::Registry;

use self::environment::Collector;
use self::export::{CountedExporter, ExportMetrics};
use postern_http::only_field::only_field;
use postern_http::trace::TRACEPARENT;
use postern_process::exit::ExitError;

/// Timeout of the export of a process's last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

static INSTALLED: OnceLock<Tracer> = OnceLock::new();

#[derive(Debug)]
struct Tracer {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
    metrics: ExportMetrics,
}

/// A span, which ends when it is dropped.
#[derive(Debug)]
pub struct Span {
    span: opentelemetry_sdk::trace::Span,
    /// The header for the next hop; `None` if the received header stays.
    traceparent: Option<HeaderValue>,
}

/// Starts tracing for `program` if the environment names a collector. Outside of any runtime.
///
/// # Errors
/// [`ExitError::Software`] after the first call.
pub fn install(program: &'static str, version: &'static str) -> Result<(), ExitError> {
    let metrics = ExportMetrics::default();
    let (collector, exporter) = match exporter(&metrics) {
        Ok(Some(exporter)) => exporter,
        Ok(None) => return Ok(()),
        // An unusable variable is no error: it may be set for every container of a cluster.
        Err(why) => {
            tracing::warn!("{why}");
            return Ok(());
        }
    };
    let provider = SdkTracerProvider::builder()
        .with_resource(resource(&collector, program, version))
        .with_span_processor(BatchSpanProcessor::builder(exporter).build())
        .build();
    let tracer = Tracer {
        tracer: provider.tracer("postern"),
        provider,
        metrics,
    };
    tracing::info!("exporting spans over OTLP");
    match INSTALLED.set(tracer) {
        Ok(()) => Ok(()),
        Err(_) => Err(ExitError::Software("a tracer is already there".to_owned())),
    }
}

fn exporter(metrics: &ExportMetrics) -> Result<Option<(Collector, CountedExporter)>, String> {
    let Some(collector) = Collector::from_environment(&variable)? else {
        return Ok(None);
    };
    let exporter = CountedExporter::new(&collector, metrics.clone())?;
    Ok(Some((collector, exporter)))
}

/// Describes this program; the variables replace its own names.
fn resource(collector: &Collector, program: &'static str, version: &'static str) -> Resource {
    let named = collector.service_name.clone();
    // Later attributes replace former ones: the variables, and last the service's name.
    Resource::builder_empty()
        .with_service_name(program)
        .with_attribute(KeyValue::new("service.version", version))
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()))
        .with_attributes(named.map(|name| KeyValue::new("service.name", name)))
        .build()
}

/// Returns the warning of [`install`] about a variable that cannot be used.
#[must_use]
pub fn warnings() -> Vec<String> {
    match Collector::from_environment(&variable) {
        Ok(_) => Vec::new(),
        Err(why) => vec![why],
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Registers the metrics of the export, if there is one.
pub fn register(registry: &mut Registry) {
    if let Some(tracer) = INSTALLED.get() {
        tracer.metrics.register(registry);
    }
}

/// Exports the spans that have ended, for 2 s at most. Later spans are not exported.
pub async fn flush() {
    if let Some(tracer) = INSTALLED.get() {
        // The shutdown of the SDK blocks its thread.
        let ended = || tracer.provider.shutdown_with_timeout(FLUSH_TIMEOUT);
        let _ = tokio::task::spawn_blocking(ended).await;
    }
}

/// Begins the span of a request that this program makes by itself; `None` without tracing.
#[must_use]
pub fn client_span(name: impl Into<Cow<'static, str>>) -> Option<Span> {
    let tracer = INSTALLED.get()?;
    // The span begins a trace of its own.
    let (parent, has_parent) = (Context::new(), false);
    Some(tracer.span(name.into(), SpanKind::Client, &parent, has_parent))
}

/// Reads the parent of a span. Several fields name no parent (W3C Trace Context §3.2).
fn received_parent(headers: &HeaderMap) -> Context {
    if !matches!(only_field(headers, &TRACEPARENT), Ok(Some(_))) {
        return Context::new();
    }
    TraceContextPropagator::new().extract_with_context(&Context::new(), &HeaderExtractor(headers))
}

impl Tracer {
    fn span(
        &self,
        name: Cow<'static, str>,
        kind: SpanKind,
        parent: &Context,
        has_parent: bool,
    ) -> Span {
        let builder = self.tracer.span_builder(name).with_kind(kind);
        let span = self.tracer.build_with_context(builder, parent);
        if span.is_recording() {
            self.metrics.spans_recorded.inc();
        }
        // The decision not to sample a trace is passed on only if the trace begins here.
        let traceparent = if span.is_recording() || !has_parent {
            header_of(span.span_context())
        } else {
            None
        };
        Span { span, traceparent }
    }
}

fn header_of(context: &SpanContext) -> Option<HeaderValue> {
    let text = format!(
        "00-{}-{}-{:02x}",
        context.trace_id(),
        context.span_id(),
        u8::from(context.is_sampled())
    );
    HeaderValue::try_from(text).ok()
}

impl Span {
    /// Returns false for a span that the sampler left out: its attributes are not kept.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.span.is_recording()
    }

    /// Returns the `traceparent` for the next hop; `None` if the received one stays.
    #[must_use]
    pub const fn traceparent(&self) -> Option<&HeaderValue> {
        self.traceparent.as_ref()
    }

    /// Sets an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.span.set_attribute(KeyValue::new(key, value));
    }

    /// Marks the work of the span as failed, by this program or a server behind it.
    pub fn fail(&mut self, error_type: &'static str) {
        self.set("error.type", error_type);
        self.span.set_status(Status::error(error_type));
    }
}
