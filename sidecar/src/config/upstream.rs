//! The upstream: address, protocol, and protection against proxying to itself.

use std::net::SocketAddr;

use postern_http::host::host_port::redacted;
use postern_http::host::loopback::is_loopback_host;
use postern_process::exit::ExitError;
use postern_transport::tls::peer::PeerFiles;

use super::flag_value::flag_error;
use crate::cli::ServeArgs;
use crate::cli::service_args::ServiceArgs;
use crate::upstream::{Endpoint, Protocol, UpstreamAddress, UpstreamTls, exposure_check};

/// Parses the address of the service.
///
/// # Errors
/// As [`super::Config::new`].
pub(super) fn upstream_address(args: &ServiceArgs) -> Result<UpstreamAddress, ExitError> {
    let text = &args.upstream;
    text.parse()
        .map_err(|error| flag_error("upstream", redacted(text), error))
}

pub(super) fn reject_own_address(
    args: &ServeArgs,
    setting: &str,
    address: &UpstreamAddress,
) -> Result<(), ExitError> {
    let own = [
        ("listen", args.listening.listen),
        ("admin-listen", args.listening.admin_listen),
    ];
    match own.into_iter().find(|(_, own)| address.leads_to(*own)) {
        None => Ok(()),
        Some((flag, own)) => Err(flag_error(
            setting,
            address,
            format!("is this sidecar's own --{flag} {own}, not the service's"),
        )),
    }
}

/// Returns the TLS settings; `None` without TLS, where flags about it are an error.
pub(super) fn upstream_tls(
    args: &ServeArgs,
    address: &UpstreamAddress,
) -> Result<Option<UpstreamTls>, ExitError> {
    let settings = &args.upstream;
    let server_name = settings.upstream_server_name.as_deref();
    let (cert, key) = (
        &settings.upstream_client_cert,
        &settings.upstream_client_key,
    );
    let files = PeerFiles {
        settings: UpstreamTls::SETTINGS,
        ca: settings.upstream_ca.clone(),
        identity: cert.clone().zip(key.clone()),
    };
    let host = match &address.endpoint {
        Endpoint::Tcp { host, .. } if address.protocol == Protocol::Https => host,
        _ => {
            let name_setting = server_name.map(|_| "--upstream-server-name");
            return match files.first_setting().or(name_setting) {
                None => Ok(None),
                Some(flag) => Err(ExitError::Config(format!(
                    "{flag}: only with an --upstream of https://"
                ))),
            };
        }
    };
    // No authority certifies 127.0.0.1, and the connection does not leave this machine.
    let is_verified = files.ca.is_some() || server_name.is_some() || !is_loopback_host(host);
    UpstreamTls::read(server_name.unwrap_or(host), is_verified, &files).map(Some)
}

/// Rejects `--require-unexposed` without an address to probe.
pub(super) fn require_pod_ip(args: &ServeArgs) -> Result<(), ExitError> {
    if args.service.require_unexposed && args.service.pod_ip.is_none() {
        return Err(ExitError::Config(
            "--require-unexposed: needs --pod-ip".to_owned(),
        ));
    }
    Ok(())
}

pub(super) fn exposure(args: &ServeArgs, upstream: &UpstreamAddress) -> Option<(SocketAddr, bool)> {
    let target = exposure_check::target(upstream, args.service.pod_ip?)?;
    Some((target, args.service.require_unexposed))
}
