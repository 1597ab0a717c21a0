//! The standard variables of OpenTelemetry that its SDK leaves to the program; the SDK reads all others.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;

use postern_process::command_line::unusable_variable;

/// The collector that the variables name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Collector {
    /// File of the authorities of the collector's certificate; `None` for the system's authorities.
    pub(super) certificate: Option<PathBuf>,
    /// True for a connection with TLS.
    pub(super) is_https: bool,
    /// True for the port of OTLP over gRPC.
    pub(super) is_grpc_port: bool,
    /// Timeout of one request.
    pub(super) timeout: Duration,
    /// The name of this service, in place of the program's name.
    pub(super) service_name: Option<String>,
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Collector {
    /// Reads the variables; `None` if they name no collector or turn the export off.
    ///
    /// # Errors
    /// The name of a variable that cannot be used.
    pub(super) fn from_environment(variable: Variables<'_>) -> Result<Option<Self>, String> {
        let endpoint = trace_variable(variable, "ENDPOINT");
        // An endpoint alone turns the export on: its default would send traces to localhost.
        match variable("OTEL_TRACES_EXPORTER").as_deref() {
            Some("none") => return Ok(None),
            None if endpoint.is_none() => return Ok(None),
            None | Some("otlp") => {}
            Some(_) => return Err(rejected("OTEL_TRACES_EXPORTER", "expected otlp or none")),
        }
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        if let Some(protocol) = trace_variable(variable, "PROTOCOL")
            && protocol.value != "http/protobuf"
        {
            return Err(rejected(&protocol.name, "expected http/protobuf"));
        }
        let uri = match endpoint {
            Some(endpoint) => parse_endpoint(&endpoint)?,
            None => Uri::default(),
        };
        let certificate = trace_variable(variable, "CERTIFICATE");
        Ok(Some(Self {
            certificate: certificate.map(|file| file.value.into()),
            is_https: uri.scheme() == Some(&Scheme::HTTPS),
            is_grpc_port: uri.port_u16() == Some(GRPC_PORT),
            timeout: timeout(variable).unwrap_or(DEFAULT_TIMEOUT),
            service_name: variable("OTEL_SERVICE_NAME"),
        }))
    }
}

/// The standard port of OTLP over gRPC; a collector takes HTTP at 4318.
const GRPC_PORT: u16 = 4317;
/// The timeout that the standard has by default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

struct Variable {
    name: String,
    value: String,
}

/// Returns the variable for traces, or else the variable for all signals.
fn trace_variable(variable: Variables<'_>, what: &str) -> Option<Variable> {
    for signal in ["TRACES_", ""] {
        let name = format!("OTEL_EXPORTER_OTLP_{signal}{what}");
        if let Some(value) = variable(&name) {
            return Some(Variable { name, value });
        }
    }
    None
}

fn timeout(variable: Variables<'_>) -> Option<Duration> {
    let milliseconds = trace_variable(variable, "TIMEOUT")?.value.parse().ok()?;
    Some(Duration::from_millis(milliseconds))
}

fn parse_endpoint(Variable { name, value }: &Variable) -> Result<Uri, String> {
    match value.parse() {
        Ok(uri) if is_plain(&uri) => Ok(uri),
        _ => Err(rejected(
            name,
            "expected http://HOST:PORT or https://HOST:PORT; credentials go into OTEL_EXPORTER_OTLP_HEADERS",
        )),
    }
}

/// Returns false for a URL with credentials or a query, which errors of the SDK would name.
fn is_plain(uri: &Uri) -> bool {
    let authority = match uri.authority() {
        Some(authority) => authority.as_str(),
        None => "",
    };
    matches!(uri.scheme_str(), Some("http" | "https"))
        && !authority.is_empty()
        && !authority.contains('@')
        && uri.query().is_none()
}

fn rejected(name: &str, why: &str) -> String {
    unusable_variable("no spans are exported", name, why)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

    fn read(variables: &[(&str, &str)]) -> Result<Option<Collector>, String> {
        Collector::from_environment(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn spans_are_exported_only_to_a_named_collector() {
        for (variables, on) in [
            (&[][..], false),
            (&[("OTEL_SERVICE_NAME", "orders")], false),
            (&[ENDPOINT], true),
            (
                &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://c/v1/traces")],
                true,
            ),
            (&[("OTEL_TRACES_EXPORTER", "otlp")], true),
            (&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")], false),
            (&[ENDPOINT, ("OTEL_SDK_DISABLED", "True")], false),
        ] {
            assert_eq!(read(variables).unwrap().is_some(), on, "{variables:?}");
        }
    }

    #[test]
    fn the_variables_of_traces_count_more() {
        let collector = read(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://c/v1/traces"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "5000"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "300"),
        ]);
        let collector = collector.unwrap().unwrap();
        assert!(collector.is_https && !collector.is_grpc_port);
        assert_eq!(collector.timeout, Duration::from_millis(300));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:secret@collector"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c?token=secret"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_TRACES_EXPORTER", "otlp,console"),
        ] {
            let line = read(&[(name, value), ENDPOINT]).unwrap_err();
            assert!(line.contains(name), "{line}");
            assert!(!line.contains("secret"), "{line}");
        }
    }
}
