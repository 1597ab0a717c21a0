//! The service behind the sidecar, and what it gets of a request.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use runtime::command_line::serialize::word;
use serde::Serialize;

use crate::headers::forwarded::ForwardedPolicy;

/// The service's address. A service that speaks HTTP/2 alone opens no WebSocket.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Service")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ServiceArgs {
    /// The service behind: http://HOST:PORT, https://HOST:PORT, h2c://HOST:PORT (HTTP/2 without TLS,
    /// for gRPC), unix:/PATH or h2c+unix:/PATH
    #[arg(
        long,
        env = "POSTERN_UPSTREAM",
        default_value = "http://127.0.0.1:3000",
        value_name = "URL"
    )]
    pub(crate) upstream: String,
}

/// Certificates for the connection to the service, and the look for a way past the sidecar.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Service")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct UpstreamArgs {
    /// Carries plain HTTP/1.1 requests to an http:// or unix: service without Pingora's proxy: less work for
    /// each, and the same checks, limits and time-outs
    #[arg(long, env = "POSTERN_FAST_PATH", default_value_t = true, action = ArgAction::Set)]
    pub(crate) fast_path: bool,

    /// PEM file of the authorities that may vouch for an https:// service. Default: the system's
    #[arg(long, env = "POSTERN_UPSTREAM_CA", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_ca: Option<PathBuf>,

    /// PEM file of the certificate that is shown to an https:// service
    #[arg(long, env = "POSTERN_UPSTREAM_CLIENT_CERT", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_client_cert: Option<PathBuf>,

    /// PEM file of its private key
    #[arg(long, env = "POSTERN_UPSTREAM_CLIENT_KEY", value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_client_key: Option<PathBuf>,

    /// Name that the certificate of an https:// service has to be for. Default: the host of --upstream
    #[arg(long, env = "POSTERN_UPSTREAM_SERVER_NAME", value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_server_name: Option<String>,

    /// Address of the pod, to look once a minute whether the service answers there too, where nobody
    /// asks for a token; a warning and a metric say so
    #[arg(long, env = "POSTERN_POD_IP", value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod_ip: Option<IpAddr>,

    /// Not to be ready while the service answers on --pod-ip
    #[arg(long, env = "POSTERN_REFUSE_BYPASS")]
    pub(crate) refuse_bypass: bool,
}

/// Treatment of a request on its way to the service.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Service")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct UpstreamRequestArgs {
    /// Whether the service sees the Authorization header
    #[arg(long, env = "POSTERN_FORWARD_AUTHORIZATION", default_value_t = true, action = ArgAction::Set)]
    pub(crate) forward_authorization: bool,

    /// Reuse a connection to the service after a request with a body. Quicker; only for a service
    /// that reads every body to its end, also of requests that it refuses
    #[arg(long, env = "POSTERN_REUSE_AFTER_BODY")]
    pub(crate) reuse_after_body: bool,

    /// What becomes of X-Forwarded-For, -Proto and Forwarded: the client's address is appended,
    /// everything a client says is overwritten – any other X-Forwarded-*, X-Real-IP, X-Client-IP and the
    /// like are removed –, or nothing is touched
    #[arg(long, env = "POSTERN_FORWARDED", value_enum, default_value_t = ForwardedPolicy::Append, value_name = "POLICY")]
    #[serde(serialize_with = "word")]
    pub(crate) forwarded: ForwardedPolicy,
}
