//! Services and servers around the two programs: our own fakes, and real ones that tests start.

pub mod careless_service;
pub mod connect_proxy;
pub mod echo_service;
pub mod fake_auth_server;
pub mod file_mounts;
pub mod frame_service;
pub mod go;
pub mod h2_service;
pub mod nacos_3;
pub mod node;
pub mod otlp_collector;
pub mod peer_issuer;
pub mod prometheus;
pub mod python;
pub mod redis_server;
pub mod redis_topologies;
pub mod rnacos_server;
pub mod small_disk;
pub mod socket_server;
pub mod streaming_service;
pub mod tls_gateway;
pub mod tls_service;
