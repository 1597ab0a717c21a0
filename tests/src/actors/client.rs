//! Clients of the two programs. Every response of a program is checked against the OpenAPI
//! document.

use std::net::SocketAddr;

use serde_json::Value;

use crate::actors::programs::Program;
use crate::services::echo_service;
use crate::tables::openapi;
use crate::wire::message::Message;
use crate::wire::raw_client::exchange;
use crate::wire::tls::Trust;

/// Header line of a form.
pub const FORM: &str = "Content-Type: application/x-www-form-urlencoded";

/// One HTTP/1.1 request; header lines keep their order and case.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    target: Vec<u8>,
    header_lines: Vec<Vec<u8>>,
    body: Option<Vec<u8>>,
}

impl Request {
    /// Creates a request for an absolute path, written without changes.
    pub fn new(method: &str, target: impl Into<Vec<u8>>) -> Self {
        Self {
            method: method.to_owned(),
            target: target.into(),
            header_lines: Vec::new(),
            body: None,
        }
    }

    /// Adds a header line.
    #[must_use]
    pub fn line(mut self, line: impl Into<Vec<u8>>) -> Self {
        self.header_lines.push(line.into());
        self
    }

    /// Adds header lines.
    #[must_use]
    pub fn lines<L: AsRef<[u8]>>(self, lines: impl IntoIterator<Item = L>) -> Self {
        let lines = lines.into_iter();
        lines.fold(self, |request, line| request.line(line.as_ref()))
    }

    /// Sets the body and its `Content-Length`.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sets a JSON body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.line("Content-Type: application/json")
            .body(body.to_string())
    }

    /// Returns the bytes on the wire.
    pub fn bytes(&self, host: &str) -> Vec<u8> {
        let mut bytes = format!("{} ", self.method).into_bytes();
        bytes.extend_from_slice(&self.target);
        bytes.extend_from_slice(format!(" HTTP/1.1\r\nHost: {host}\r\n").as_bytes());
        for line in &self.header_lines {
            bytes.extend_from_slice(line);
            bytes.extend_from_slice(b"\r\n");
        }
        if let Some(body) = &self.body {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }
}

/// A client of one of the two programs.
#[derive(Debug, Clone)]
pub struct Client {
    program: Program,
    address: SocketAddr,
    context: String,
    token: Option<String>,
    trust: Option<Trust>,
}

impl Client {
    /// Creates a client without a token.
    pub fn anonymous(program: Program, address: SocketAddr, context: &str) -> Self {
        Self {
            program,
            address,
            context: context.to_owned(),
            token: None,
            trust: None,
        }
    }

    /// Returns this client with a token.
    #[must_use]
    pub fn bearing(&self, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..self.clone()
        }
    }

    /// Returns this client over TLS.
    #[must_use]
    pub fn over_tls(&self, trust: &Trust) -> Self {
        Self {
            trust: Some(trust.clone()),
            ..self.clone()
        }
    }

    /// Sends GET to a path relative to the context path.
    pub fn get(&self, path: &str) -> Message {
        self.send(&self.request("GET", path))
    }

    /// Returns the status of GET.
    pub fn status(&self, path: &str) -> u16 {
        self.get(path).status()
    }

    /// Returns the verdict on GET.
    pub fn verdict(&self, path: &str) -> String {
        self.get(path).verdict()
    }

    /// Sends POST with a JSON body.
    pub fn post(&self, path: &str, body: &Value) -> Message {
        self.send(&self.request("POST", path).json(body))
    }

    /// Sends POST with a form.
    pub fn post_form(&self, path: &str, form: &str) -> Message {
        let request = self.request("POST", path).line(FORM).body(form);
        self.send(&request)
    }

    /// Creates a request for a path relative to the context path, with the client's token.
    pub fn request(&self, method: &str, path: &str) -> Request {
        let request = Request::new(method, format!("{}{path}", self.context));
        match &self.token {
            Some(token) => request.line(format!("Authorization: Bearer {token}")),
            None => request,
        }
    }

    /// Sends a request and checks the form of the response.
    ///
    /// # Panics
    /// When there is no response, or one that the OpenAPI document does not describe.
    pub fn send(&self, request: &Request) -> Message {
        let bytes = request.bytes(&self.address.to_string());
        let response = match &self.trust {
            None => exchange(self.address, &request.method, &bytes),
            Some(trust) => {
                let connected = trust.connect(self.address);
                let mut client =
                    connected.unwrap_or_else(|error| panic!("TLS to {}: {error}", self.address));
                client.send(&bytes);
                client.response(&request.method)
            }
        };
        if response.header(echo_service::MARK).is_empty() {
            let target = String::from_utf8_lossy(&request.target);
            let path = target
                .strip_prefix(self.context.as_str())
                .unwrap_or(&target);
            openapi::document().check(self.program, &request.method, path, &response);
        }
        response
    }
}

impl Message {
    /// Returns the reason code in the body of a failure.
    ///
    /// # Panics
    /// When the body is no envelope.
    pub fn reason(&self) -> String {
        let envelope = self.json();
        let reason = envelope["data"]["reason"].as_str().map(str::to_owned);
        reason.unwrap_or_else(|| panic!("no reason in {envelope}"))
    }

    /// Returns status and reason code of a rejection, `200` for a success, as the tables write it.
    pub fn verdict(&self) -> String {
        verdict_of(self.status(), &self.body)
    }
}

/// Returns status and reason code of a rejection, `200` for a success.
pub(crate) fn verdict_of(status: u16, body: &[u8]) -> String {
    if status < 400 {
        return status.to_string();
    }
    let envelope: Value = serde_json::from_slice(body).unwrap_or_default();
    let reason = envelope["data"]["reason"].as_str();
    format!("{status} {}", reason.unwrap_or("without a reason"))
}
