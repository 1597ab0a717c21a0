//! A service behind TLS that responds 200 to every request, and may require a client certificate.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::certificates::Certificate;
use crate::echo_service::MARK;
use crate::message::Message;
use crate::socket_server::response;

/// The service. It lives as long as the test's process.
#[derive(Debug)]
pub struct TlsService {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Message>>>,
}

impl TlsService {
    /// Starts the service with this certificate; with `client_ca`, clients need a certificate of
    /// that authority.
    ///
    /// # Panics
    /// When no port is free, or the certificate is invalid.
    pub fn start(certificate: &Certificate, client_ca: Option<&Path>) -> Self {
        let config = certificate.serving(client_ca);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("the address just bound");
        let requests = Arc::new(Mutex::default());
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (config, seen) = (Arc::clone(&config), Arc::clone(&seen));
                std::thread::spawn(move || serve(socket, config, &seen));
            }
        });
        Self { address, requests }
    }

    /// Returns the value for `--upstream` with this host name.
    pub fn url(&self, host: &str) -> String {
        format!("https://{host}:{}", self.address.port())
    }

    /// Returns every request so far.
    pub fn requests(&self) -> Vec<Message> {
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn serve(socket: TcpStream, config: Arc<ServerConfig>, seen: &Mutex<Vec<Message>>) {
    let Ok(connection) = ServerConnection::new(config) else {
        return;
    };
    let mut stream = BufReader::new(StreamOwned::new(connection, socket));
    while let Ok(Some(request)) = Message::read_request(&mut stream) {
        seen.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(request);
        let response = response("200 OK", &[&format!("{MARK}: 1")], b"over TLS");
        let stream = stream.get_mut();
        if stream
            .write_all(&response)
            .and_then(|()| stream.flush())
            .is_err()
        {
            return;
        }
    }
}
