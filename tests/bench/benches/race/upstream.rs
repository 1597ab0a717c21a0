//! The service behind every contestant: nginx with 30 bytes and a few files.

use bench::machine;
use tests::wire::free_address::free_address;

use crate::contestants::{Running, nginx};

/// Body of its response.
pub(crate) const BODY: &str = "thirty bytes of plain response";

/// Files that nginx serves, and their sizes.
pub(crate) const FILES: [(&str, usize); 3] = [
    ("/files/16-kib", 16 * 1024),
    ("/files/1-mib", 1024 * 1024),
    // Server-side includes make the response chunked, though the file has none.
    ("/chunked/16-kib", 16 * 1024),
];

/// Starts it.
pub(crate) fn start() -> Running {
    let program = machine::find("nginx").expect("nginx");
    let server = format!(
        "location / {{ return 200 '{BODY}'; }} location /files/ {{ }}
         location /chunked/ {{ ssi on; ssi_types *; }}"
    );
    nginx::start(&program, "upstream", free_address(), "", &server, &FILES)
}
