//! The sidecar's ports and their certificates.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use postern_transport::net::listener::ip_address_and_port;
use postern_transport::tls::{ClientCertArgs, TlsArgs};
use serde::Serialize;

/// The port for clients with its certificates, and the admin port.
#[derive(Debug, Clone, Args, Serialize)]
#[command(next_help_heading = "Listening")]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ListenArgs {
    /// Address to serve on; port 0 picks a free one
    #[arg(
        long,
        env,
        default_value = "127.0.0.1:8080",
        value_parser = ip_address_and_port,
        value_name = "ADDRESS"
    )]
    pub(crate) listen: SocketAddr,

    /// Address for probes, metrics and the status page; port 0 picks a free one
    #[arg(
        long,
        env,
        default_value = "127.0.0.1:8081",
        value_parser = ip_address_and_port,
        value_name = "ADDRESS"
    )]
    pub(crate) admin_listen: SocketAddr,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) tls: TlsArgs,

    /// PEM file of authorities: every client must present a certificate of one of them, besides its
    /// token, unless --client-cert optional
    #[arg(long, env, value_name = "FILE", requires = "tls_cert")]
    pub(crate) client_ca: Option<PathBuf>,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) client_cert: ClientCertArgs,
}
