//! `--probes`: the probes of the service, with its address.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use postern_contract::settings::probes::{self, Action, Probe, Scheme};
use postern_process::exit::ExitError;
use postern_process::files::toml_error::in_plain_words;

use super::upstream::reject_own_address;
use crate::cli::ServeArgs;
use crate::identity::user_header::UserHeader;
use crate::upstream::{Endpoint, Protocol, UpstreamAddress};

/// Begins like the kubelet's, by which services leave probes out of their logs.
pub(crate) const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("kube-probe/postern-", env!("CARGO_PKG_VERSION")));

/// A probe of the service, ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct ServiceProbe {
    pub(crate) name: String,
    /// The service's address, with the probe's own port and scheme.
    pub(crate) address: UpstreamAddress,
    /// The action, with all fields that are sent.
    pub(crate) action: Action,
    pub(crate) timeout: Duration,
}

/// Returns the probes of the command line.
///
/// # Errors
/// [`ExitError::Config`] for text that is no probe, for a probe of the sidecar's own ports, and for a probe
/// with a header that names the user to the service, because any peer may request it.
pub(super) fn service_probes(
    args: &ServeArgs,
    upstream: &UpstreamAddress,
    user: &UserHeader,
) -> Result<Vec<ServiceProbe>, ExitError> {
    let Some(text) = &args.service.probes else {
        return Ok(Vec::new());
    };
    let unusable = |why: String| ExitError::Config(format!("--probes: {}", in_plain_words(&why)));
    let parsed = probes::parse(text).map_err(unusable)?;
    probes::reject_user_headers(&parsed, |name| user.is_alias(name)).map_err(unusable)?;
    let mut probes = Vec::new();
    for probe in parsed {
        let probe = service_probe(probe, upstream);
        reject_own_address(args, "probes", &probe.address)?;
        probes.push(probe);
    }
    Ok(probes)
}

/// Returns the probe of a service at `upstream`.
fn service_probe(mut probe: Probe, upstream: &UpstreamAddress) -> ServiceProbe {
    let address = address(&probe, upstream);
    if let Action::Http { headers, .. } = &mut probe.action {
        *headers = as_the_kubelet_sends(std::mem::take(headers));
    }
    ServiceProbe {
        address,
        name: probe.name,
        action: probe.action,
        timeout: probe.timeout,
    }
}

fn address(probe: &Probe, upstream: &UpstreamAddress) -> UpstreamAddress {
    let protocol = match &probe.action {
        Action::Http {
            scheme: Some(Scheme::Https),
            ..
        } => Protocol::Https,
        Action::Http { scheme: None, .. } if upstream.protocol == Protocol::Https => {
            Protocol::Https
        }
        // To a service of HTTP/2 the kubelet speaks HTTP/1.1 too.
        _ => Protocol::Http,
    };
    let host = match &upstream.endpoint {
        Endpoint::Tcp { host, .. } => host.as_str(),
        Endpoint::Unix(_) => "127.0.0.1",
    };
    let endpoint = match probe.port {
        None => upstream.endpoint.clone(),
        Some(port) => Endpoint::Tcp {
            host: host.to_owned(),
            port: port.get(),
        },
    };
    UpstreamAddress { protocol, endpoint }
}

/// Returns the fields of a probe's request, as the kubelet sends them.
fn as_the_kubelet_sends(mut headers: HeaderMap) -> HeaderMap {
    headers.entry(header::USER_AGENT).or_insert(USER_AGENT);
    // Neither here nor in a kubelet may the operator frame the request.
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::TRANSFER_ENCODING);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers
}
