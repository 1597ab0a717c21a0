//! `--probes`: the probes of the service, as Kubernetes writes them.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use runtime::process::exit::ExitError;
use serde::Deserialize;
use serde_json::Value;
use wire::strict_json;

use super::upstream::reject_own_address;
use crate::cli::ServeArgs;
use crate::upstream::{Endpoint, Protocol, UpstreamAddress};

/// The kubelet's prefix, by which services leave probes out of their logs.
const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("kube-probe/postern-", env!("CARGO_PKG_VERSION")));

/// One probe of the service.
#[derive(Debug, Clone)]
pub(crate) struct ServiceProbe {
    pub(crate) name: String,
    /// The service's, with the probe's own port and scheme.
    pub(crate) address: UpstreamAddress,
    /// With its query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
}

/// The members of Kubernetes' `Probe` that say how to probe; how often is the kubelet's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Probe {
    http_get: Option<HttpGet>,
    tcp_socket: Option<Value>,
    grpc: Option<Value>,
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

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Scheme {
    Http,
    Https,
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

/// Returns the probes of the command line.
///
/// # Errors
/// [`ExitError::Config`] for what is no probe by HTTP, and for a probe of the sidecar's own ports.
pub(super) fn service_probes(
    args: &ServeArgs,
    upstream: &UpstreamAddress,
) -> Result<Vec<ServiceProbe>, ExitError> {
    let Some(text) = &args.upstream.probes else {
        return Ok(Vec::new());
    };
    let rejected = |why| ExitError::Config(format!("--probes: {why}"));
    let probes = parse(text, upstream).map_err(rejected)?;
    for probe in &probes {
        reject_own_address(args, "probes", &probe.address)?;
    }
    Ok(probes)
}

/// Parses the probes of a service at `upstream`.
///
/// # Errors
/// The reason, with the name of the probe.
pub(crate) fn parse(text: &str, upstream: &UpstreamAddress) -> Result<Vec<ServiceProbe>, String> {
    let probes = strict_json::object(text.as_bytes()).map_err(|error| error.to_string())?;
    let of_each = probes.into_iter().map(|(name, probe)| {
        let probe = service_probe(&name, probe, upstream);
        probe.map_err(|why| format!("'{name}': {why}"))
    });
    of_each.collect()
}

fn service_probe(
    name: &str,
    probe: Value,
    upstream: &UpstreamAddress,
) -> Result<ServiceProbe, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_plain) {
        return Err("a name is of letters, digits, '-' and '_'".to_owned());
    }
    let probe: Probe = serde_json::from_value(probe).map_err(|error| error.to_string())?;
    let others = [("tcpSocket", probe.tcp_socket), ("grpc", probe.grpc)];
    if let Some((other, _)) = others.into_iter().find(|(_, action)| action.is_some()) {
        return Err(format!("{other} is not supported: httpGet only"));
    }
    let http = probe.http_get.ok_or("needs httpGet")?;
    let path = &http.path;
    if !path.starts_with('/') || path.parse::<PathAndQuery>().is_err() {
        return Err(format!("'{path}' is no path"));
    }
    Ok(ServiceProbe {
        name: name.to_owned(),
        address: address(&http, upstream),
        headers: headers(&http.http_headers)?,
        path: http.path,
        timeout: Duration::from_secs(probe.timeout_seconds.map_or(1, NonZeroU32::get).into()),
    })
}

fn address(http: &HttpGet, upstream: &UpstreamAddress) -> UpstreamAddress {
    let protocol = match (http.scheme, upstream.protocol) {
        (Some(Scheme::Https), _) | (None, Protocol::Https) => Protocol::Https,
        // To a service of HTTP/2 the kubelet speaks HTTP/1.1 too.
        _ => Protocol::Http,
    };
    let endpoint = match (&upstream.endpoint, http.port) {
        (same, None) => same.clone(),
        (Endpoint::Tcp { host, .. }, Some(port)) => Endpoint::Tcp {
            host: host.clone(),
            port: port.get(),
        },
        (Endpoint::Unix(_), Some(port)) => Endpoint::Tcp {
            host: "127.0.0.1".to_owned(),
            port: port.get(),
        },
    };
    UpstreamAddress { protocol, endpoint }
}

/// Returns the fields of a probe's request, as the kubelet sends them.
fn headers(given: &[Header]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for Header { name, value } in given {
        let unusable = || format!("httpHeaders: '{name}' is unusable");
        let name: HeaderName = name.parse().map_err(|_| unusable())?;
        let value: HeaderValue = value.parse().map_err(|_| unusable())?;
        headers.append(name, value);
    }
    headers.entry(header::USER_AGENT).or_insert(USER_AGENT);
    // Framing is not the operator's, in a kubelet neither.
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::TRANSFER_ENCODING);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(headers)
}
