//! Checks of a request before its token, for both programs: framing, host, path, origin.

pub mod cors;
pub mod destination;
pub mod framing;
pub mod header_alias;
pub mod host;
pub mod host_port;
pub mod loopback;
pub mod loose_path;
pub mod methods;
pub mod path_patterns;
pub mod request_path;
pub mod server_url;
pub mod trace;
