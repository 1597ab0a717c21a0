//! The service behind every contestant: 30 bytes and nothing else. nginx where it is installed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use bench::machine;
use tests::free_address::free_address;
use tests::process::CommandLine;

use crate::contestants::{Running, nginx};

/// Body of its response.
pub(crate) const BODY: &str = "thirty bytes of plain response";

/// Files that nginx serves, and their sizes. The small server below has none.
pub(crate) const FILES: [(&str, usize); 3] = [
    ("/files/16-kib", 16 * 1024),
    ("/files/1-mib", 1024 * 1024),
    // Server-side includes make the response chunked, though the file has none.
    ("/chunked/16-kib", 16 * 1024),
];

/// Starts nginx, or the small server below.
pub(crate) fn start() -> Running {
    let address = free_address();
    if let Some(program) = machine::find("nginx") {
        let server = format!(
            "location / {{ return 200 '{BODY}'; }} location /files/ {{ }}
             location /chunked/ {{ ssi on; ssi_types *; }}"
        );
        return nginx::start(&program, "upstream", address, "", &server, &FILES);
    }
    println!(
        "nginx is missing: the service behind is a bundled server; install nginx for figures to compare"
    );
    let this = std::env::current_exe().expect("the path of this program");
    let address_text = address.to_string();
    let process = CommandLine::new(this).arguments(["upstream", &address_text]);
    Running::new("bundled upstream", address, process.start(), None)
}

/// Serves until it is killed, with a thread for each connection.
pub(crate) fn serve(address: SocketAddr) {
    let listener = TcpListener::bind(address).expect("a free address");
    for connection in listener.incoming().flatten() {
        std::thread::spawn(move || respond_to_all(connection));
    }
}

fn respond_to_all(mut connection: TcpStream) {
    let response = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let mut buffer = [0; 16 * 1024];
    let mut filled = 0;
    let _ = connection.set_nodelay(true);
    while let Ok(count @ 1..) = connection.read(buffer.get_mut(filled..).unwrap_or_default()) {
        filled += count;
        if buffer
            .get(..filled)
            .is_some_and(|head| head.ends_with(b"\r\n\r\n"))
        {
            filled = 0;
            if connection.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    }
}
