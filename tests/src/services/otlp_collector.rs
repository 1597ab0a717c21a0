//! A collector of spans: OTLP over HTTP.

use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use prost::Message as _;

use crate::services::socket_server::{Reply, SocketServer, response};

/// A received span.
#[derive(Debug, Clone)]
pub struct SeenSpan {
    /// `service.name` of its program.
    pub service: String,
    /// Its name.
    pub name: String,
    /// Its kind: 2 for a server's, 3 for a client's.
    pub kind: i32,
    /// Hexadecimal id of its trace.
    pub trace_id: String,
    /// Its hexadecimal id.
    pub span_id: String,
    /// Hexadecimal id of its parent; empty for a root.
    pub parent_id: String,
    /// Its attributes, as text.
    pub attributes: Vec<(String, String)>,
    /// True if its status is an error.
    pub failed: bool,
}

impl SeenSpan {
    /// Returns an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

type Spans = Arc<Mutex<Vec<SeenSpan>>>;

/// A running collector.
#[derive(Debug)]
pub struct Collector {
    server: SocketServer,
    spans: Spans,
}

impl Collector {
    /// Starts one.
    pub fn start() -> Self {
        let spans = Spans::default();
        let seen = Arc::clone(&spans);
        let server = SocketServer::start(move |request| {
            assert_eq!(request.target(), b"/v1/traces");
            take(&seen, &request.body);
            Reply::Bytes(response(
                "200 OK",
                &["Content-Type: application/x-protobuf"],
                b"",
            ))
        });
        Self { server, spans }
    }

    /// Returns the variables that let a program export to it at once.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                format!("http://{}", self.server.address()),
            ),
            ("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned()),
        ]
    }

    /// Returns every span so far.
    pub fn spans(&self) -> Vec<SeenSpan> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.clone()
    }
}

fn take(spans: &Spans, message: &[u8]) {
    let request = ExportTraceServiceRequest::decode(message).expect("an export of spans");
    let mut seen = spans.lock().unwrap_or_else(PoisonError::into_inner);
    for resource in request.resource_spans {
        let attributes = resource.resource.map(|resource| resource.attributes);
        let service = texts(attributes.unwrap_or_default());
        let service = service.into_iter().find(|(name, _)| name == "service.name");
        let service = service.map(|(_, name)| name).unwrap_or_default();
        let spans = resource.scope_spans.into_iter();
        for span in spans.flat_map(|scope| scope.spans) {
            seen.push(SeenSpan {
                service: service.clone(),
                name: span.name,
                kind: span.kind,
                trace_id: hex(&span.trace_id),
                span_id: hex(&span.span_id),
                parent_id: hex(&span.parent_span_id),
                attributes: texts(span.attributes),
                failed: span.status.is_some_and(|status| status.code == 2),
            });
        }
    }
}

fn texts(attributes: Vec<KeyValue>) -> Vec<(String, String)> {
    let text = |attribute: KeyValue| {
        let value = match attribute.value?.value? {
            Value::StringValue(text) => text,
            Value::IntValue(number) => number.to_string(),
            other => format!("{other:?}"),
        };
        Some((attribute.key, value))
    };
    attributes.into_iter().filter_map(text).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
