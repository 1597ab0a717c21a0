//! A second implementation of the contract's key endpoint, which misbehaves on demand.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use serde_json::json;

use crate::services::socket_server::{Reply, SocketServer, response};
use crate::wait;
use crate::wire::message::Message;

type Replies = Box<dyn Fn(&Message) -> Reply + Send + Sync>;

/// Server of `/auth/client/user/secret/key` with configurable responses.
#[derive(Debug)]
pub struct FakeAuthServer {
    server: SocketServer,
    reply: Arc<Mutex<Reply>>,
    scheme: &'static str,
}

impl FakeAuthServer {
    /// Starts a server of `key`.
    pub fn serving(key: &str) -> Self {
        Self::replying(key_response(key))
    }

    /// Starts a server with this reply to every request.
    pub fn replying(reply: Reply) -> Self {
        Self::start(reply, |replies| SocketServer::start(replies))
    }

    /// Starts a server on an address that was known before.
    pub fn serving_on(address: SocketAddr, key: &str) -> Self {
        let start = |replies| SocketServer::start_on(address, replies);
        Self::start(key_response(key), start)
    }

    /// Starts a server of `key` over TLS.
    pub fn serving_tls(tls: Arc<ServerConfig>, key: &str) -> Self {
        let start = |replies| SocketServer::start_tls(tls, replies);
        let scheme = "https";
        Self {
            scheme,
            ..Self::start(key_response(key), start)
        }
    }

    fn start(reply: Reply, start: impl FnOnce(Replies) -> SocketServer) -> Self {
        let reply = Arc::new(Mutex::new(reply));
        let current = Arc::clone(&reply);
        let replies = move |_: &Message| {
            let reply = current.lock().unwrap_or_else(PoisonError::into_inner);
            reply.clone()
        };
        let server = start(Box::new(replies));
        let scheme = "http";
        Self {
            server,
            reply,
            scheme,
        }
    }

    /// Replaces the TLS settings.
    pub fn set_tls(&self, tls: Arc<ServerConfig>) {
        self.server.set_tls(tls);
    }

    /// Replaces the reply.
    pub fn set_reply(&self, reply: Reply) {
        *self.reply.lock().unwrap_or_else(PoisonError::into_inner) = reply;
    }

    /// Returns the value for `--auth-server`.
    pub fn url(&self) -> String {
        format!("{}://{}/auth", self.scheme, self.server.address())
    }

    /// Returns the listen address.
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the requests for the key, oldest first.
    pub fn retrievals(&self) -> Vec<Message> {
        self.server.requests()
    }

    /// Waits for `more` requests for the key; returns all.
    ///
    /// # Panics
    /// When they do not come.
    pub fn until_fetched(&self, more: usize) -> Vec<Message> {
        let before = self.retrievals().len();
        wait::until("fetches of the key", || {
            let requests = self.retrievals();
            (requests.len() >= before + more).then_some(requests)
        })
    }
}

/// Returns the contract's response (§4.3) with this key.
pub fn key_response(key: &str) -> Reply {
    let envelope =
        json!({"success": true, "status": 200, "msg": "operation succeeded", "data": key});
    json_response("200 OK", &envelope.to_string())
}

/// Returns a JSON body with this status line.
pub fn json_response(status_line: &str, body: &str) -> Reply {
    Reply::Bytes(response(
        status_line,
        &["Content-Type: application/json"],
        body.as_bytes(),
    ))
}
