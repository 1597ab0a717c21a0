//! The service behind the sidecar, and the treatment of requests to it.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use postern_process::command_line::name;
use postern_process::command_line::serialize::word;
use serde::Serialize;

use crate::identity::forwarded::ForwardedPolicy;

/// The service, its probes and the exposure check. A service that speaks HTTP/2 alone opens no
/// WebSocket.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Service")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ServiceArgs {
    /// The service behind: http://HOST:PORT, https://…, h2c://… (gRPC) or unix:/PATH
    ///
    /// h2c is HTTP/2 without TLS; h2c+unix:/PATH is the same over a socket
    #[arg(long, env, default_value = "http://127.0.0.1:3000", value_name = "URL")]
    pub(crate) upstream: String,

    /// Probes of the service that the admin port forwards, for any peer, at /probe/NAME
    ///
    /// A JSON object of Kubernetes' probes by name, with httpGet, tcpSocket or grpc, such as
    /// {"ready": {"httpGet": {"path": "/healthz"}, "timeoutSeconds": 1}}. Default of port and
    /// scheme: those of --upstream
    #[arg(long, env, value_name = "JSON")]
    pub(crate) probes: Option<String>,

    /// Address of the pod, on which the service should not be reachable
    ///
    /// Once a minute the sidecar checks whether it is, without a token; a warning and a metric
    /// report it
    #[arg(long, env, value_name = "ADDRESS")]
    pub(crate) pod_ip: Option<IpAddr>,

    /// Do not become ready while the service accepts connections on --pod-ip
    #[arg(long, env)]
    pub(crate) require_unexposed: bool,
}

/// Certificates for the connection to the service; a reload replaces them as a whole.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Service")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct UpstreamArgs {
    /// PEM file of the authorities to trust for an https:// service
    ///
    /// Default: the system's; on a loopback address its certificate is then not verified
    #[arg(long, env, value_name = "FILE")]
    pub(crate) upstream_ca: Option<PathBuf>,

    /// PEM file of the certificate to present to an https:// service
    #[arg(long, env, requires = "upstream_client_key", value_name = "FILE")]
    pub(crate) upstream_client_cert: Option<PathBuf>,

    /// PEM file of its private key
    #[arg(long, env, requires = "upstream_client_cert", value_name = "FILE")]
    pub(crate) upstream_client_key: Option<PathBuf>,

    /// Name that the certificate of an https:// service has to be for
    ///
    /// Default: the host of --upstream
    #[arg(long, env, value_parser = name, value_name = "NAME")]
    pub(crate) upstream_server_name: Option<String>,
}

/// Treatment of a request on its way to the service.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Service")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct UpstreamRequestArgs {
    /// Pass the Authorization header to the service
    #[arg(long, env, default_value_t = true, action = ArgAction::Set)]
    pub(crate) forward_authorization: bool,

    /// Reuse a connection to the service after every body, not only after short ones
    ///
    /// Short ones that hold no request leave it open anyway. Only for a service that reads each body
    /// to its end, also of requests that it rejects
    #[arg(long, env)]
    pub(crate) upstream_reuse_after_body: bool,

    /// Treatment of X-Forwarded-For, -Proto and Forwarded: append the client's address, overwrite,
    /// or change nothing
    ///
    /// Overwriting removes all that a client sends, and any other X-Forwarded-*, X-Real-IP,
    /// X-Client-IP and the like
    #[arg(long, env, value_enum, default_value_t = ForwardedPolicy::Append, value_name = "POLICY")]
    #[serde(serialize_with = "word")]
    pub(crate) forwarded: ForwardedPolicy,
}
