//! The unmodified service behind a sidecar: ignores tokens and records every byte.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::services::socket_server::{Reply, SocketServer, response};
use crate::wire::message::Message;

/// Header that marks a response of the service. Only the sidecar's own responses are checked
/// against the OpenAPI document.
pub const MARK: &str = "X-Echo-Service";

/// The service.
#[derive(Debug)]
pub struct EchoService {
    server: SocketServer,
    response: Arc<Mutex<Vec<u8>>>,
}

impl EchoService {
    /// Starts the service; it responds 200 to every request.
    pub fn start() -> Self {
        let usual = response(
            "200 OK",
            &[&format!("{MARK}: 1"), "Content-Type: text/plain"],
            b"echo",
        );
        let response = Arc::new(Mutex::new(usual));
        let current = Arc::clone(&response);
        let server = SocketServer::start(move |request| {
            let bytes = current
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            Reply::Bytes(if request.method() == "HEAD" {
                head_of(&bytes)
            } else {
                bytes
            })
        });
        Self { server, response }
    }

    /// Sets the response from now on.
    pub fn responds(&self, bytes: Vec<u8>) {
        *self.response.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
    }

    /// Returns the listen address.
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the value for `--upstream`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Returns every request so far, oldest first.
    pub fn requests(&self) -> Vec<Message> {
        self.server.requests()
    }

    /// Returns the last request.
    ///
    /// # Panics
    /// When there was no request.
    pub fn last_request(&self) -> Message {
        self.requests()
            .pop()
            .expect("the service received a request")
    }

    /// Takes the requests received since the last call.
    pub fn take_requests(&self) -> Vec<Message> {
        let requests = self.requests();
        self.server.forget();
        requests
    }
}

fn head_of(response: &[u8]) -> Vec<u8> {
    let end = response
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .map_or(response.len(), |at| at + 4);
    response.get(..end).unwrap_or_default().to_vec()
}
