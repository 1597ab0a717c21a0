//! Envoy: plain, and with `jwt_authn`, with and without its token cache.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};
use tests::actors::process::CommandLine;
use tests::wire::certificates::Certificate;
use tests::wire::free_address::free_address;

use super::{Running, Setup};
use crate::tokens::{ISSUER, LEEWAY};

const TYPES: &str = "type.googleapis.com/envoy.extensions.filters";

/// Starts a proxy without rules.
pub(crate) fn plain(program: &Path, upstream: SocketAddr) -> Running {
    start(program, upstream, &[], Setup::PLAIN)
}

/// Envoy's cache of verified tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    On,
    Off,
}

/// Starts a proxy with the sidecar's checks; the service receives the user.
pub(crate) fn verifying(
    program: &Path,
    upstream: SocketAddr,
    jwk_set: &str,
    cache: Cache,
    setup: Setup<'_>,
) -> Running {
    let mut provider = json!({
        "issuer": ISSUER,
        "local_jwks": {"inline_string": jwk_set},
        "forward": true,
        "forward_payload_header": "x-current-user",
        "clock_skew_seconds": LEEWAY,
    });
    if cache == Cache::On {
        provider["jwt_cache_config"] = json!({"jwt_cache_size": 10_000});
    }
    let filter = json!({
        "name": "envoy.filters.http.jwt_authn",
        "typed_config": {
            "@type": format!("{TYPES}.http.jwt_authn.v3.JwtAuthentication"),
            "providers": {"bench": provider},
            "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "bench"}}],
        },
    });
    start(program, upstream, &[filter], setup)
}

fn start(program: &Path, upstream: SocketAddr, filters: &[Value], setup: Setup<'_>) -> Running {
    let (address, directory) = (
        free_address(),
        tempfile::tempdir().expect("a temporary directory"),
    );
    let file = directory.path().join("envoy.json");
    let mut configuration = configuration(address, upstream, filters);
    if let Some(certificate) = setup.tls {
        let chain = &mut configuration["static_resources"]["listeners"][0]["filter_chains"][0];
        chain["transport_socket"] = serving_tls(certificate);
    }
    std::fs::write(&file, configuration.to_string()).expect("the configuration is written");
    let process = CommandLine::new(program)
        .arguments(["--concurrency".to_owned(), setup.threads.to_string()])
        .arguments(["--disable-hot-restart"])
        .arguments(["--log-level", "error", "-c"])
        .arguments([file])
        .start();
    Running::new("envoy", address, process, Some(directory))
}

fn configuration(address: SocketAddr, upstream: SocketAddr, filters: &[Value]) -> Value {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": format!("{TYPES}.http.router.v3.Router")},
    });
    let filters: Vec<_> = filters.iter().cloned().chain([router]).collect();
    let manager = json!({
        "@type": format!("{TYPES}.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "bench",
        "http_filters": filters,
        "route_config": {"virtual_hosts": [{
            "name": "all", "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "service"}}],
        }]},
    });
    let endpoint = json!({"endpoint": {"address": socket_address(upstream)}});
    json!({"static_resources": {
        "listeners": [{
            "address": socket_address(address),
            "filter_chains": [{"filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": manager,
            }]}],
        }],
        "clusters": [{
            "name": "service", "type": "STATIC",
            "load_assignment": {
                "cluster_name": "service",
                "endpoints": [{"lb_endpoints": [endpoint]}],
            },
        }],
    }})
}

fn serving_tls(certificate: &Certificate) -> Value {
    let (chain, key) = certificate.paths();
    json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {"tls_certificates": [{
                "certificate_chain": {"filename": chain},
                "private_key": {"filename": key},
            }]},
        },
    })
}

fn socket_address(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}
