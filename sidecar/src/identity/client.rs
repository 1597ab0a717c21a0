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
    /// Returns a client without a certificate; [`Self::with_certificate`] sets the certificate.
    pub(crate) fn new(address: Option<IpAddr>, tls: bool, proxies: &TrustedProxies) -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        let (is_trusted_proxy, text) = match address {
            Some(address) => {
                let text = Bytes::from(address.to_canonical().to_string());
                // Never an error: an address is visible ASCII.
                let text = HeaderValue::from_maybe_shared(text).ok();
                (proxies.trusts(address), text)
            }
            None => (false, None),
        };
        Self {
            connection: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
            address,
            tls,
            certificate: None,
            is_trusted_proxy,
            text,
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
