//! A registry with the HTTP API of Nacos 3, over TLS and with a login, that misbehaves on demand.
//! Written from the published API: no server of Nacos 3 runs in these tests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::services::socket_server::{Reply, SocketServer, response};
use crate::wire::certificates::Authority;
use crate::wire::message::Message;

/// Account of the registry.
pub const USER: &str = "postern";
/// Password of [`USER`].
pub const PASSWORD: &str = "hush-registry";
const LOGIN: &str = "username=postern&password=hush-registry";
const TOKEN: &str = "hush-token";

/// The registry of one service, whose authority signed its certificate.
#[derive(Debug)]
pub struct Nacos3 {
    server: SocketServer,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The form of the registration.
    registered: Option<String>,
    bad_reply: Option<Reply>,
}

impl Nacos3 {
    /// Starts a registry without instances.
    pub fn start(authority: &Authority) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let tls = authority.issue_server(&["127.0.0.1"]).serving(None);
        let server = SocketServer::start_tls(tls, move |request| {
            let mut state = lock(&shared);
            state
                .bad_reply
                .clone()
                .unwrap_or_else(|| state.reply(request))
        });
        Self { server, state }
    }

    /// Returns the listen address.
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the form of the registration in force.
    pub fn registered(&self) -> Option<String> {
        lock(&self.state).registered.clone()
    }

    /// Drops the instance, as after a time without renewals.
    pub fn drop_instance(&self) {
        lock(&self.state).registered = None;
    }

    /// Responds with this to every request from now on.
    pub fn misbehave(&self, bad_reply: Reply) {
        self.server.forget();
        lock(&self.state).bad_reply = Some(bad_reply);
    }

    /// Returns the requests since the last change.
    pub fn requests(&self) -> Vec<Message> {
        self.server.requests()
    }
}

impl State {
    fn reply(&mut self, request: &Message) -> Reply {
        let line = request.first_line();
        let target = line.split(['?', ' ']).take(2).collect::<Vec<_>>().join(" ");
        let form = request.text();
        if target == "POST /nacos/v3/auth/user/login" && form == LOGIN {
            return replying("200 OK", &json!({"accessToken": TOKEN, "tokenTtl": 18000}));
        }
        if request.header("authorization") != [format!("Bearer {TOKEN}")] {
            return replying("403 Forbidden", &json!({"code": 403}));
        }
        match target.as_str() {
            "POST /nacos/v3/client/ns/instance" if form.contains("heartBeat=true") => {
                let code = if self.registered.is_some() { 0 } else { 21003 };
                replying("200 OK", &json!({"code": code, "data": null}))
            }
            "POST /nacos/v3/client/ns/instance" => {
                self.registered = Some(form);
                replying("200 OK", &json!({"code": 0, "data": "ok"}))
            }
            "DELETE /nacos/v3/client/ns/instance" => {
                self.registered = None;
                replying("200 OK", &json!({"code": 0, "data": "ok"}))
            }
            "GET /nacos/v3/client/ns/instance/list" => {
                let listed: Vec<_> = self.registered.iter().map(|form| entry(form)).collect();
                replying("200 OK", &json!({"code": 0, "data": listed}))
            }
            _ => replying("404 Not Found", &json!({"code": 404})),
        }
    }
}

fn entry(form: &str) -> Value {
    let field = |name: &str| {
        let mut fields = form.split('&').filter_map(|field| field.split_once('='));
        fields
            .find(|field| field.0 == name)
            .map_or("", |(_, value)| value)
    };
    let port: u16 = field("port").parse().unwrap_or_default();
    json!({
        "ip": field("ip"), "port": port, "weight": 1.0, "healthy": true, "enabled": true,
        "ephemeral": true, "clusterName": "DEFAULT", "metadata": {},
    })
}

fn replying(status: &str, body: &Value) -> Reply {
    Reply::Bytes(response(status, &[], body.to_string().as_bytes()))
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
