//! Requests as clients send them: heads, framing, bodies, paths, both versions of HTTP.

mod ambiguous_requests;
mod bodies;
mod cors;
mod differential;
pub(super) mod forwarding;
mod http2;
mod joined_fields;
mod pass_list;
mod paths;
mod pipelining;
mod raw_requests;
mod real_servers;
mod request_fields;
mod spoofing;
mod token_headers;
mod token_locations;
mod unread_bodies;
