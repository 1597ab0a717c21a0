//! A service behind TLS that responds 200 to every request, and may require a client certificate.

use std::path::Path;

use crate::services::echo_service::MARK;
use crate::services::socket_server::{Reply, SocketServer, response};
use crate::wire::certificates::Certificate;
use crate::wire::message::Message;

/// The service.
#[derive(Debug)]
pub struct TlsService(SocketServer);

impl TlsService {
    /// Starts the service with this certificate; with `client_ca`, clients need a certificate of
    /// that authority.
    ///
    /// # Panics
    /// When no port is free, or the certificate is invalid.
    pub fn start(certificate: &Certificate, client_ca: Option<&Path>) -> Self {
        let reply = response("200 OK", &[&format!("{MARK}: 1")], b"over TLS");
        let tls = certificate.serving(client_ca);
        let reply = move |_: &Message| Reply::Bytes(reply.clone());
        Self(SocketServer::start_tls(tls, reply))
    }

    /// Returns the value for `--upstream` with this host name.
    pub fn url(&self, host: &str) -> String {
        format!("https://{host}:{}", self.0.address().port())
    }

    /// Returns every request so far.
    pub fn requests(&self) -> Vec<Message> {
        self.0.requests()
    }
}
