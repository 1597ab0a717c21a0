//! Messages, connections, certificates, clocks: the ways to the actors and services.

pub mod certificates;
pub mod clock;
pub mod free_address;
pub mod h2_client;
pub mod h2_frames;
pub mod hpack;
pub mod loopback;
pub mod message;
pub mod metrics;
pub mod moved_clock;
pub mod raw_client;
pub mod tls;
