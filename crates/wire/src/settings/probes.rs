//! `--probes`: the probes of the service, as Kubernetes writes them.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;

use crate::strict_json;

/// One probe of the service.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Its name in the path of the admin port.
    pub name: String,
    /// `None` where `--upstream` decides.
    pub scheme: Option<Scheme>,
    /// `None` where `--upstream` decides.
    pub port: Option<NonZeroU16>,
    /// With its query.
    pub path: String,
    /// As given.
    pub headers: HeaderMap,
    /// One second by default.
    pub timeout: Duration,
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

/// The members of Kubernetes' `Probe` that say how to probe; how often is the kubelet's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Members {
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
    let probes = strict_json::object(text.as_bytes()).map_err(|error| error.to_string())?;
    let of_each = probes.into_iter().map(|(name, members)| {
        let probe = probe(&name, members);
        probe.map_err(|why| format!("'{name}': {why}"))
    });
    of_each.collect()
}

fn probe(name: &str, members: Value) -> Result<Probe, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_plain) {
        return Err("a name is of letters, digits, '-' and '_'".to_owned());
    }
    let members: Members = serde_json::from_value(members).map_err(|error| error.to_string())?;
    let others = [("tcpSocket", members.tcp_socket), ("grpc", members.grpc)];
    if let Some((other, _)) = others.into_iter().find(|(_, action)| action.is_some()) {
        return Err(format!("{other} is not supported: httpGet only"));
    }
    let http = members.http_get.ok_or("needs httpGet")?;
    let path = &http.path;
    if !path.starts_with('/') || path.parse::<PathAndQuery>().is_err() {
        return Err(format!("'{path}' is no path"));
    }
    let timeout = members.timeout_seconds.map_or(1, NonZeroU32::get);
    Ok(Probe {
        name: name.to_owned(),
        scheme: http.scheme,
        port: http.port,
        headers: headers(&http.http_headers)?,
        path: http.path,
        timeout: Duration::from_secs(timeout.into()),
    })
}

fn headers(given: &[Header]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for Header { name, value } in given {
        let unusable = || format!("httpHeaders: '{name}' is unusable");
        let name: HeaderName = name.parse().map_err(|_| unusable())?;
        let value: HeaderValue = value.parse().map_err(|_| unusable())?;
        headers.append(name, value);
    }
    Ok(headers)
}
