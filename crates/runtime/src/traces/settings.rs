//! The standard variables of OpenTelemetry that concern the export of spans. What the exporter
//! reads by itself is only checked here: a start fails where it would quietly fall back.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

use crate::process::exit::ExitError;

const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];
/// Client certificates for the collector.
const NOT_SUPPORTED: [&str; 4] = [
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
];

/// Transport to the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Grpc,
    Http,
}

/// The settings of the export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) protocol: Protocol,
    /// Authorities of the collector's certificate; `None` for the system's.
    pub(super) certificate: Option<PathBuf>,
    /// Timeout of one request to the collector.
    pub(super) timeout: Duration,
    /// Max number of spans that wait.
    pub(super) queue: usize,
    /// Max number of spans in one request.
    pub(super) batch: usize,
    /// The first span after an export waits this long for others.
    pub(super) delay: Duration,
    names_service: bool,
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Settings {
    /// Reads the variables; `None` where they name no collector or turn the export off.
    ///
    /// # Errors
    /// [`ExitError::Config`] with the name of a variable that cannot be used.
    pub(super) fn from_environment(variable: Variables<'_>) -> Result<Option<Self>, ExitError> {
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let exporter = variable("OTEL_TRACES_EXPORTER");
        match exporter.as_deref() {
            Some("none") => return Ok(None),
            None | Some("otlp") => {}
            Some(other) => {
                return Err(rejected(
                    "OTEL_TRACES_EXPORTER",
                    other,
                    "expected otlp or none",
                ));
            }
        }
        let endpoint = of_traces(variable, "ENDPOINT");
        if exporter.is_none() && endpoint.is_none() {
            return Ok(None);
        }
        if let Some((name, value)) = &endpoint {
            check_endpoint(name, value)?;
        }
        check_sampler(variable)?;
        for name in NOT_SUPPORTED {
            if let Some(value) = variable(name) {
                return Err(rejected(
                    name,
                    &value,
                    "client certificates are not supported",
                ));
            }
        }
        let queue = number(variable, "OTEL_BSP_MAX_QUEUE_SIZE", 2048)?;
        Ok(Some(Self {
            protocol: protocol(variable)?,
            certificate: of_traces(variable, "CERTIFICATE").map(|(_, path)| path.into()),
            timeout: timeout(variable)?,
            queue,
            batch: number(variable, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)?.min(queue),
            delay: milliseconds(number(variable, "OTEL_BSP_SCHEDULE_DELAY", 5000)?),
            names_service: names_service(variable),
        }))
    }

    /// Returns the description of this program: the variables count more.
    pub(super) fn resource(&self, program: &'static str, version: &'static str) -> Resource {
        let resource =
            Resource::builder().with_attribute(KeyValue::new("service.version", version));
        if self.names_service {
            resource.build()
        } else {
            resource.with_service_name(program).build()
        }
    }
}

/// Returns the variable for traces, or the one for all signals, with its name.
fn of_traces(variable: Variables<'_>, what: &str) -> Option<(String, String)> {
    let names = [
        format!("OTEL_EXPORTER_OTLP_TRACES_{what}"),
        format!("OTEL_EXPORTER_OTLP_{what}"),
    ];
    names.into_iter().find_map(|name| {
        let value = variable(&name)?;
        Some((name, value))
    })
}

/// Refuses credentials and queries, which log lines about a failed export would name.
fn check_endpoint(name: &str, value: &str) -> Result<(), ExitError> {
    let uri = value.parse::<Uri>().ok();
    let is_usable = uri.is_some_and(|uri| {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        is_http && !authority.is_empty() && !authority.contains('@') && uri.query().is_none()
    });
    if is_usable {
        return Ok(());
    }
    let why = "expected http://HOST:PORT or https://HOST:PORT; credentials go into OTEL_EXPORTER_OTLP_HEADERS";
    // Not the value: it may hold a password.
    Err(ExitError::Config(format!("{name}: {why}")))
}

fn check_sampler(variable: Variables<'_>) -> Result<(), ExitError> {
    let Some(sampler) = variable("OTEL_TRACES_SAMPLER") else {
        return Ok(());
    };
    if !SAMPLERS.contains(&sampler.as_str()) {
        let expected = format!("expected one of {}", SAMPLERS.join(", "));
        return Err(rejected("OTEL_TRACES_SAMPLER", &sampler, &expected));
    }
    if sampler.ends_with("traceidratio") {
        let ratio = variable("OTEL_TRACES_SAMPLER_ARG").unwrap_or_else(|| "1".to_owned());
        let parsed = ratio.parse::<f64>();
        if !parsed.is_ok_and(|ratio| (0.0..=1.0).contains(&ratio)) {
            return Err(rejected(
                "OTEL_TRACES_SAMPLER_ARG",
                &ratio,
                "expected a number from 0 to 1",
            ));
        }
    }
    Ok(())
}

fn protocol(variable: Variables<'_>) -> Result<Protocol, ExitError> {
    match of_traces(variable, "PROTOCOL") {
        None => Ok(Protocol::Http),
        Some((name, value)) => match value.as_str() {
            "grpc" => Ok(Protocol::Grpc),
            "http/protobuf" => Ok(Protocol::Http),
            other => Err(rejected(&name, other, "expected grpc or http/protobuf")),
        },
    }
}

fn timeout(variable: Variables<'_>) -> Result<Duration, ExitError> {
    let name = of_traces(variable, "TIMEOUT").map(|(name, _)| name);
    let name = name.unwrap_or_else(|| "OTEL_EXPORTER_OTLP_TIMEOUT".to_owned());
    number(variable, &name, 10_000).map(milliseconds)
}

fn names_service(variable: Variables<'_>) -> bool {
    let attributes = variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let mut names = attributes
        .split(',')
        .filter_map(|pair| pair.split('=').next());
    variable("OTEL_SERVICE_NAME").is_some() || names.any(|name| name.trim() == "service.name")
}

fn number(variable: Variables<'_>, name: &str, default: usize) -> Result<usize, ExitError> {
    let Some(value) = variable(name) else {
        return Ok(default);
    };
    let number = value.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| rejected(name, &value, "expected a number above 0"))
}

fn milliseconds(number: usize) -> Duration {
    Duration::from_millis(u64::try_from(number).unwrap_or(u64::MAX))
}

fn rejected(name: &str, value: &str, why: &str) -> ExitError {
    ExitError::Config(format!("{name} '{value}': {why}"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, ExitError> {
        Settings::from_environment(&|name| {
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
        let settings = read(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "5000"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "300"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ]);
        let settings = settings.unwrap().unwrap();
        assert_eq!(settings.protocol, Protocol::Grpc);
        assert_eq!(settings.timeout, Duration::from_millis(300));
        assert_eq!((settings.queue, settings.batch), (100, 100));
        assert_eq!(settings.delay, Duration::from_millis(50));
    }

    #[test]
    fn what_cannot_be_used_stops_the_start_and_is_named() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                "http://me:secret@collector:4317",
            ),
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                "http://collector:4317?token=secret",
            ),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "soon"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_TRACES_SAMPLER", "xray"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "key.pem"),
        ] {
            let failure = read(&[(name, value), ENDPOINT]).unwrap_err();
            let line = failure.to_string();
            assert!(failure.code() == 78 && line.contains(name), "{line}");
            assert!(!line.contains("secret"), "{line}");
        }
        let ratio = [
            ENDPOINT,
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "1.5"),
        ];
        assert_eq!(read(&ratio).unwrap_err().code(), 78);
    }
}
