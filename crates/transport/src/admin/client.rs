//! Client of a running program's admin port, for commands beside a server: an image holds no shell
//! and no curl.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use http::{Method, StatusCode};
use postern_process::exit::ExitError;
use tokio::runtime::Builder;

use crate::http_client::{Body, ClientSettings, HttpClient, HttpRequest, MaxLength};
use crate::tls::install_provider;
use crate::tls::peer::PeerFiles;

/// Max length of a response. A report is a few hundred bytes, an explanation repeats a header block; a peer
/// that sends more is not our admin port.
const MAX_RESPONSE: usize = 1024 * 1024;

/// One request to the admin port.
#[derive(Debug, Clone)]
pub struct AdminRequest<'a> {
    /// Of the route.
    pub method: Method,
    /// Of the route.
    pub path: &'a str,
    /// The body; empty for a request without one.
    pub json: &'a [u8],
    /// Timeout of the whole exchange.
    pub timeout: Duration,
}

/// A response of the admin port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminResponse {
    /// The status as received.
    pub status: StatusCode,
    /// The body, empty if it is missing.
    pub body: String,
}

impl AdminRequest<'_> {
    /// Sends the request to the admin port, which may be given as it was configured to listen
    /// (`0.0.0.0:9001`). Outside of any runtime.
    ///
    /// # Errors
    /// [`ExitError::Unavailable`] without a response in time.
    pub fn send(self, admin: SocketAddr) -> Result<AdminResponse, ExitError> {
        let url = format!("http://{}{}", reachable(admin), self.path);
        self.exchange(&url).map_err(|why| {
            ExitError::Unavailable(format!(
                "no response from {url}: {why}; is {admin} the --admin-listen of a running server?"
            ))
        })
    }

    fn exchange(self, url: &str) -> Result<AdminResponse, String> {
        // The library builds no client without a provider, even if no request needs TLS. The call fails if a
        // provider is installed already.
        let _ = install_provider();
        let settings = ClientSettings {
            timeout: self.timeout,
            ..ClientSettings::default()
        };
        let request = HttpRequest {
            method: &self.method,
            body: match self.json {
                [] => Body::None,
                json => Body::Json(json),
            },
            is_last: true,
            max_length: MaxLength::Rejected(MAX_RESPONSE),
            ..HttpRequest::get(url)
        };
        let response = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?
            .block_on(HttpClient::new(settings, PeerFiles::default()).send(request))
            .map_err(|error| error.to_string())?;
        Ok(AdminResponse {
            status: response.status,
            body: String::from_utf8_lossy(&response.body).into_owned(),
        })
    }
}

/// Returns the address to connect to: this host in place of an unspecified address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => loopback(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Returns the loopback address of IPv6, or IPv4's on a host without the former.
fn loopback() -> IpAddr {
    match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => Ipv6Addr::LOCALHOST.into(),
        Err(_) => Ipv4Addr::LOCALHOST.into(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_unspecified_address_is_reached_on_loopback() {
        for (listen, expected) in [
            ("0.0.0.0:9001", "127.0.0.1:9001"),
            ("[::]:9001", "[::1]:9001"),
            ("10.1.2.3:9001", "10.1.2.3:9001"),
        ] {
            let found = reachable(listen.parse().unwrap());
            assert_eq!(found, expected.parse().unwrap());
        }
    }

    #[test]
    fn a_silent_port_is_given_up_at_the_timeout() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let request = AdminRequest {
            method: Method::GET,
            path: "/readyz",
            json: &[],
            timeout: Duration::from_millis(50),
        };
        let failure = request.send(silent.local_addr().unwrap()).unwrap_err();
        assert_eq!(failure.code(), 69);
    }
}
