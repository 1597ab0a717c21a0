//! nginx: the service behind, and a plain proxy.

use std::net::SocketAddr;
use std::path::Path;

use tests::actors::process::CommandLine;
use tests::wire::free_address::free_address;

use super::Running;

/// Starts a proxy with keep-alive connections to the service.
pub(crate) fn plain(program: &Path, upstream: SocketAddr) -> Running {
    let pool = format!(
        "upstream service {{ server {upstream}; keepalive 64; keepalive_requests 1000000000; }}"
    );
    let server = "location / { proxy_pass http://service; proxy_http_version 1.1; \
                  proxy_set_header Connection ''; }";
    start(program, "nginx", free_address(), &pool, server, &[])
}

/// Starts one process with one worker; `http` and `server` are the content of these blocks, `files`
/// the paths and sizes of the files that it serves.
pub(crate) fn start(
    program: &Path,
    name: &str,
    address: SocketAddr,
    http: &str,
    server: &str,
    files: &[(&str, usize)],
) -> Running {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (path, size) in files {
        let file = directory
            .path()
            .join("html")
            .join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        std::fs::write(file, vec![b'x'; *size]).expect("a written file");
    }
    let home = directory.path().display();
    let configuration = format!(
        "daemon off; master_process off; pid {home}/pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  keepalive_requests 1000000000; keepalive_timeout 600;
  client_body_temp_path {home}/a; proxy_temp_path {home}/b; fastcgi_temp_path {home}/c;
  uwsgi_temp_path {home}/d; scgi_temp_path {home}/e;
  {http}
  server {{ listen {address}; {server} }}
}}"
    );
    let file = directory.path().join("nginx.conf");
    std::fs::write(&file, configuration).expect("the configuration is written");
    let process = CommandLine::new(program)
        .arguments(["-p".into(), directory.path().to_path_buf()])
        .arguments(["-c".into(), file])
        .start();
    Running::new(name, address, process, Some(directory))
}
