//! HAProxy: plain, and with `jwt_verify`, which has no cache.

use std::net::SocketAddr;
use std::path::Path;

use tests::actors::process::CommandLine;
use tests::wire::free_address::free_address;

use super::{Running, Setup};
use crate::tokens::{ISSUER, LEEWAY};

/// Starts a proxy without rules.
pub(crate) fn plain(program: &Path, upstream: SocketAddr) -> Running {
    start(program, upstream, "", None, Setup::PLAIN)
}

/// Starts a proxy with the sidecar's checks: algorithm, signature, `exp`, `iss`; the service
/// receives the user.
pub(crate) fn verifying(
    program: &Path,
    upstream: SocketAddr,
    public_pem: &str,
    setup: Setup<'_>,
) -> Running {
    // Without `-m`, HAProxy cannot compare a variable.
    let rules = format!(
        r#"
  http-request set-var(txn.token) http_auth_bearer
  http-request set-var(txn.alg) var(txn.token),jwt_header_query('$.alg')
  http-request deny deny_status 401 unless {{ var(txn.alg) -m str RS256 }}
  http-request deny deny_status 401 unless {{ var(txn.token),jwt_verify(txn.alg,"KEY") -m int 1 }}
  http-request deny deny_status 401 unless {{ var(txn.token),jwt_payload_query('$.iss') -m str {ISSUER} }}
  http-request set-var(txn.now) date(-{LEEWAY})
  http-request set-var(txn.left) var(txn.token),jwt_payload_query('$.exp','int'),sub(txn.now)
  http-request deny deny_status 401 unless {{ var(txn.left) -m int gt 0 }}
  http-request set-header X-Current-User %[var(txn.token),jwt_payload_query('$.username')]
"#
    );
    start(program, upstream, &rules, Some(public_pem), setup)
}

fn start(
    program: &Path,
    upstream: SocketAddr,
    rules: &str,
    public_pem: Option<&str>,
    setup: Setup<'_>,
) -> Running {
    let (address, directory) = (
        free_address(),
        tempfile::tempdir().expect("a temporary directory"),
    );
    let key = directory.path().join("key.pem");
    std::fs::write(&key, public_pem.unwrap_or_default()).expect("the key is written");
    let rules = rules.replace("KEY", &key.display().to_string());
    let tls = setup.tls.map_or_else(String::new, |certificate| {
        let file = directory.path().join("tls.pem");
        let parts = [&certificate.cert, &certificate.key].map(std::fs::read_to_string);
        let pem: String = parts
            .into_iter()
            .map(|part| part.expect("a file"))
            .collect();
        std::fs::write(&file, pem).expect("the certificate is written");
        format!("ssl crt {}", file.display())
    });
    let threads = setup.threads;
    let configuration = format!(
        "global
  nbthread {threads}
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend front
  bind {address} {tls}
{rules}
  default_backend service
backend service
  server service {upstream}
"
    );
    let file = directory.path().join("haproxy.cfg");
    std::fs::write(&file, configuration).expect("the configuration is written");
    let process = CommandLine::new(program)
        .arguments(["-db".into(), "-f".into(), file])
        .start();
    Running::new("haproxy", address, process, Some(directory))
}
