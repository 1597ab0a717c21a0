//! Gateways that end TLS and pass the certificate of their client on.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::actors::process::{CommandLine, Process};
use crate::skip;
use crate::wait;
use crate::wire::certificates::{Authority, Certificate};
use crate::wire::free_address::free_address;

/// A running gateway.
#[derive(Debug)]
pub struct TlsGateway {
    address: SocketAddr,
    _process: Process,
    _directory: TempDir,
}

/// The parts of its configuration.
#[derive(Debug, Clone, Copy)]
pub struct GatewayPlan<'a> {
    /// The sidecar behind.
    pub upstream: SocketAddr,
    /// The certificate to serve with.
    pub server: &'a Certificate,
    /// The authority of clients' certificates.
    pub clients: &'a Authority,
}

impl TlsGateway {
    /// Starts nginx, which sends `X-Client-Cert`; `None`, with a SKIP line, where it is not installed.
    pub fn nginx(plan: GatewayPlan<'_>) -> Option<Self> {
        let program = program("nginx", "make bench-peers")?;
        let (address, directory) = (free_address(), directory());
        let (home, ca) = (directory.path().display(), plan.clients.file());
        let (cert, key) = plan.server.paths();
        let upstream = plan.upstream;
        let configuration = format!(
            "daemon off; master_process off; pid {home}/pid; error_log stderr crit;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {home}/a; proxy_temp_path {home}/b; fastcgi_temp_path {home}/c;
  uwsgi_temp_path {home}/d; scgi_temp_path {home}/e;
  server {{
    listen {address} ssl;
    ssl_certificate {cert}; ssl_certificate_key {key};
    ssl_client_certificate {ca}; ssl_verify_client optional_no_ca;
    location / {{
      proxy_pass http://{upstream}; proxy_http_version 1.1; proxy_set_header Connection '';
      proxy_set_header X-Client-Cert $ssl_client_escaped_cert;
    }}
  }}
}}",
            ca = ca.display()
        );
        let file = written(&directory, "nginx.conf", &configuration);
        let command =
            CommandLine::new(program).arguments([PathBuf::from("-p"), directory.path().into()]);
        Some(Self::listening(
            command.arguments(["-c".into(), file]),
            address,
            directory,
        ))
    }

    /// Starts HAProxy, which sends `X-Client-Cert` as RFC 9440 has it; `None` as with `nginx`.
    pub fn haproxy(plan: GatewayPlan<'_>) -> Option<Self> {
        let program = program("haproxy", "make bench-peers")?;
        let (address, directory) = (free_address(), directory());
        let parts = [&plan.server.cert, &plan.server.key].map(std::fs::read_to_string);
        let pem: String = parts
            .into_iter()
            .map(|part| part.expect("a file"))
            .collect();
        let pem = written(&directory, "tls.pem", &pem);
        let configuration = format!(
            "global
  maxconn 64
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend front
  bind {address} ssl crt {pem} verify optional ca-file {ca} ca-ignore-err all crt-ignore-err all
  http-request del-header X-Client-Cert
  http-request set-header X-Client-Cert :%[ssl_c_der,base64]: if {{ ssl_c_used }}
  default_backend service
backend service
  server service {upstream}
",
            pem = pem.display(),
            ca = plan.clients.file().display(),
            upstream = plan.upstream,
        );
        let file = written(&directory, "haproxy.cfg", &configuration);
        let command = CommandLine::new(program).arguments(["-db".into(), "-f".into(), file]);
        Some(Self::listening(command, address, directory))
    }

    /// Starts Caddy, which sends `X-Client-Cert` as RFC 9440 has it; `None` as with `nginx`. Of a client
    /// without a certificate it sends the name of the certificate's variable.
    pub fn caddy(plan: GatewayPlan<'_>) -> Option<Self> {
        let program = program("caddy", "apt-get install caddy")?;
        let (address, directory) = (free_address(), directory());
        let (cert, key) = plan.server.paths();
        let (port, upstream) = (address.port(), plan.upstream);
        let configuration = format!(
            "{{
  admin off
  auto_https off
  servers {{
    strict_sni_host insecure_off
  }}
}}
https://:{port} {{
  bind 127.0.0.1
  tls {cert} {key} {{
    client_auth {{
      mode request
    }}
  }}
  reverse_proxy {upstream} {{
    header_up X-Client-Cert :{{tls_client_certificate_der_base64}}:
  }}
}}
"
        );
        let file = written(&directory, "Caddyfile", &configuration);
        let command = CommandLine::new(program)
            .arguments(["run", "--adapter", "caddyfile", "--config"])
            .arguments([file])
            .environment("HOME", directory.path());
        Some(Self::listening(command, address, directory))
    }

    /// Starts Envoy, which sends `X-Forwarded-Client-Cert`; `None` as with `nginx`.
    pub fn envoy(plan: GatewayPlan<'_>) -> Option<Self> {
        let program = program("envoy", "make bench-peers")?;
        let (address, directory) = (free_address(), directory());
        let file = written(&directory, "envoy.json", &envoy(address, plan).to_string());
        let command = CommandLine::new(program)
            .arguments([
                "--concurrency",
                "1",
                "--disable-hot-restart",
                "--log-level",
                "error",
                "-c",
            ])
            .arguments([file]);
        Some(Self::listening(command, address, directory))
    }

    fn listening(command: CommandLine, address: SocketAddr, directory: TempDir) -> Self {
        let mut process = command.start();
        wait::until("the gateway to listen", || {
            assert!(process.ended().is_none(), "{}", process.output());
            TcpStream::connect(address).ok()
        });
        Self {
            address,
            _process: process,
            _directory: directory,
        }
    }

    /// Returns the listen address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

fn envoy(address: SocketAddr, plan: GatewayPlan<'_>) -> Value {
    const TYPES: &str = "type.googleapis.com/envoy.extensions";
    let socket = |address: SocketAddr| json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}});
    let (cert, key) = plan.server.paths();
    let manager = json!({
        "@type": format!("{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "gateway",
        "forward_client_cert_details": "SANITIZE_SET",
        "set_current_client_cert_details": {"subject": true, "uri": true},
        "http_filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": format!("{TYPES}.filters.http.router.v3.Router")},
        }],
        "route_config": {"virtual_hosts": [{
            "name": "all", "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "sidecar"}}],
        }]},
    });
    let tls = json!({
        "@type": format!("{TYPES}.transport_sockets.tls.v3.DownstreamTlsContext"),
        "common_tls_context": {
            "tls_certificates": [{"certificate_chain": {"filename": cert}, "private_key": {"filename": key}}],
            "validation_context": {
                "trusted_ca": {"filename": plan.clients.file()},
                "trust_chain_verification": "ACCEPT_UNTRUSTED",
            },
        },
    });
    json!({"static_resources": {
        "listeners": [{
            "address": socket(address),
            "filter_chains": [{
                "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}],
                "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls},
            }],
        }],
        "clusters": [{
            "name": "sidecar", "type": "STATIC",
            "load_assignment": {"cluster_name": "sidecar", "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": socket(plan.upstream)}}]},
            ]},
        }],
    }})
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn written(directory: &TempDir, name: &str, text: &str) -> PathBuf {
    let file = directory.path().join(name);
    std::fs::write(&file, text).expect("a written file");
    file
}

/// Finds a program, also where Debian keeps servers and where `make bench-peers` installs Envoy.
///
/// Returns `None`, with a SKIP line, otherwise.
pub fn program(name: &str, how_to_install: &str) -> Option<PathBuf> {
    let python = std::env::var_os("POSTERN_TEST_PYTHON").map(PathBuf::from);
    let venv = python
        .as_deref()
        .and_then(Path::parent)
        .map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .chain(venv)
        .map(|directory| directory.join(name))
        .find(|program| program.is_file());
    if found.is_none() {
        skip::skip(&format!("the tests with {name}"), how_to_install);
    }
    found
}
