//! `--probes`: the probes of the service, as Kubernetes writes them.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use postern_token::strict_json::{self, Value};

/// Max length of a service's name, whose length is one byte in a health request.
const MAX_SERVICE_BYTES: usize = 127;

/// A probe of the service.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The name of the probe in the path of the admin port.
    pub name: String,
    /// The request or connection of the probe.
    pub action: Action,
    /// `None` where `--upstream` decides.
    pub port: Option<NonZeroU16>,
    /// The timeout of the probe, one second by default.
    pub timeout: Duration,
}

/// The action of a probe.
#[derive(Debug, Clone)]
pub enum Action {
    /// An HTTP request.
    Http {
        /// `None` where `--upstream` decides.
        scheme: Option<Scheme>,
        /// The path with its query.
        path: String,
        /// The headers as they were given.
        headers: HeaderMap,
    },
    /// A connection.
    Tcp,
    /// A call of gRPC's health service, about the service of this name.
    Grpc(String),
}

/// The scheme of an HTTP probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS.
    Https,
}

/// The members of Kubernetes' `Probe` that describe the probe itself; its interval is up to the kubelet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[serde(expecting = "an object with httpGet, tcpSocket or grpc")]
struct Members {
    http_get: Option<HttpGet>,
    tcp_socket: Option<TcpSocket>,
    grpc: Option<Grpc>,
    timeout_seconds: Option<NonZeroU32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct HttpGet {
    #[serde(default = "first_page")]
    path: String,
    port: Option<NonZeroU16>,
    scheme: Option<Scheme>,
    #[serde(default)]
    http_headers: Vec<Header>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TcpSocket {
    port: Option<NonZeroU16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Grpc {
    port: Option<NonZeroU16>,
    service: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    name: String,
    value: String,
}

fn first_page() -> String {
    "/".to_owned()
}

/// Parses the probes of a service.
///
/// # Errors
/// The reason, with the name of the probe.
pub fn parse(text: &str) -> Result<Vec<Probe>, String> {
    let members = strict_json::object(text.as_bytes()).map_err(|error| error.to_string())?;
    let mut probes = Vec::new();
    for (name, members) in members {
        match probe(&name, members) {
            Ok(probe) => probes.push(probe),
            Err(why) => return Err(format!("'{name}': {why}")),
        }
    }
    Ok(probes)
}

/// Rejects headers that name the user to the service: any peer may request a probe.
///
/// # Errors
/// The reason, with the name of the probe.
pub fn reject_user_headers(
    probes: &[Probe],
    is_about_user: impl Fn(&str) -> bool,
) -> Result<(), String> {
    for probe in probes {
        if let Action::Http { headers, .. } = &probe.action
            && let Some(header) = headers.keys().find(|name| is_about_user(name.as_str()))
        {
            let name = &probe.name;
            return Err(format!(
                "'{name}': httpHeaders: '{header}' names the user to the service, and any peer may \
                 request a probe: leave it out"
            ));
        }
    }
    Ok(())
}

fn probe(name: &str, members: Value) -> Result<Probe, String> {
    // The name becomes a segment of the path `/probe/NAME`.
    if name.is_empty() || !name.bytes().all(may_be_in_probe_name) {
        return Err("a name is of letters, digits, '-' and '_'".to_owned());
    }
    // serde_json's own values suffice here: duplicates were rejected when `members` was parsed.
    let members: Members = serde_json::to_value(members)
        .and_then(serde_json::from_value)
        .map_err(|error| error.to_string())?;
    // One second is the default of Kubernetes.
    let timeout = members.timeout_seconds.unwrap_or(NonZeroU32::MIN).get();
    let (action, port) = match (members.http_get, members.tcp_socket, members.grpc) {
        (Some(http), None, None) => (http_action(&http)?, http.port),
        (None, Some(tcp), None) => (Action::Tcp, tcp.port),
        (None, None, Some(grpc)) => (grpc_action(grpc.service)?, grpc.port),
        _ => return Err("needs one of httpGet, tcpSocket and grpc".to_owned()),
    };
    Ok(Probe {
        name: name.to_owned(),
        action,
        port,
        timeout: Duration::from_secs(timeout.into()),
    })
}

fn may_be_in_probe_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}

fn http_action(http: &HttpGet) -> Result<Action, String> {
    let path = &http.path;
    if !path.starts_with('/') || path.parse::<PathAndQuery>().is_err() {
        return Err(format!("'{path}' is no path"));
    }
    Ok(Action::Http {
        scheme: http.scheme,
        path: path.clone(),
        headers: headers(&http.http_headers)?,
    })
}

fn grpc_action(service: Option<String>) -> Result<Action, String> {
    let service = service.unwrap_or_default();
    if service.len() > MAX_SERVICE_BYTES {
        return Err(format!("service: has more than {MAX_SERVICE_BYTES} bytes"));
    }
    Ok(Action::Grpc(service))
}

fn headers(given: &[Header]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for Header { name, value } in given {
        let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>())
        else {
            return Err(format!("httpHeaders: '{name}' is unusable"));
        };
        // A header may be listed several times: each value is sent.
        headers.append(name, value);
    }
    Ok(headers)
}
