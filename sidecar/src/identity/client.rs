//! The client of a connection: address, transport, certificate, and whether it is a trusted proxy.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::HeaderValue;
use postern_token::digest::Digest;
use postern_transport::net::client_address::TrustedProxies;

/// The client of a connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// The number of its connection.
    pub(crate) connection: u64,
    pub(crate) address: Option<IpAddr>,
    pub(crate) tls: bool,
    /// The SHA-256 of the certificate that it presented.
    pub(crate) certificate: Option<Digest>,
    pub(crate) is_trusted_proxy: bool,
    /// The address as services get it, written once for all requests of a connection.
    pub(super) text: Option<HeaderValue>,
}

impl Client {
    pub(crate) fn new(address: Option<IpAddr>, tls: bool, proxies: &TrustedProxies) -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        let text = address
            .map(|address| address.to_canonical().to_string())
            .map(|text| HeaderValue::from_maybe_shared(Bytes::from(text)));
        Self {
            connection: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
            address,
            tls,
            certificate: None,
            is_trusted_proxy: address.is_some_and(|address| proxies.trusts(address)),
            text: text.and_then(Result::ok),
        }
    }

    /// Sets the certificate of the connection.
    pub(crate) fn with_certificate(self, certificate: Option<Digest>) -> Self {
        Self {
            certificate,
            ..self
        }
    }

    /// Returns the scheme of its requests.
    pub(super) const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}
