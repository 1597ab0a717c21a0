//! A collector of spans: OTLP over HTTP, and over gRPC.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Response};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use prost::Message as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::socket_server::{Reply, SocketServer, response};

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
    address: SocketAddr,
    protocol: &'static str,
    spans: Spans,
    _http: Option<SocketServer>,
    _grpc: Option<Runtime>,
}

impl Collector {
    /// Starts one for `http/protobuf`.
    pub fn over_http() -> Self {
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
        Self {
            address: server.address(),
            protocol: "http/protobuf",
            spans,
            _http: Some(server),
            _grpc: None,
        }
    }

    /// Starts one for `grpc`.
    ///
    /// # Panics
    /// When no port is free.
    pub fn over_grpc() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let bound = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = bound.expect("a free port");
        let address = listener.local_addr().expect("the address just bound");
        let spans = Spans::default();
        let seen = Arc::clone(&spans);
        runtime.spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, Arc::clone(&seen)));
            }
        });
        Self {
            address,
            protocol: "grpc",
            spans,
            _http: None,
            _grpc: Some(runtime),
        }
    }

    /// Returns the variables that let a program export to it at once.
    pub fn environment(&self) -> [(&'static str, String); 3] {
        [
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                format!("http://{}", self.address),
            ),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", self.protocol.to_owned()),
            ("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned()),
        ]
    }

    /// Returns every span so far.
    pub fn spans(&self) -> Vec<SeenSpan> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.clone()
    }
}

async fn serve(connection: TcpStream, spans: Spans) {
    let Ok(mut connection) = h2::server::handshake(connection).await else {
        return;
    };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let path = request.uri().path().to_owned();
        assert_eq!(
            path,
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        );
        tokio::spawn(respond_to(request.into_body(), respond, Arc::clone(&spans)));
    }
}

/// Answers a unary call: one message of five bytes and the text.
async fn respond_to(
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
    spans: Spans,
) -> Result<(), h2::Error> {
    let mut message = BytesMut::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        message.extend_from_slice(&part);
    }
    message.advance(5.min(message.len()));
    take(&spans, &message);
    let mut head = Response::new(());
    let grpc = HeaderValue::from_static("application/grpc");
    head.headers_mut().insert("content-type", grpc);
    let mut stream = respond.send_response(head, false)?;
    stream.send_data(Bytes::from_static(&[0; 5]), false)?;
    let trailers = [(
        http::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )];
    stream.send_trailers(trailers.into_iter().collect::<HeaderMap>())
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
