//! Issuers of others, as processes: they publish discovery documents and issue tokens to an
//! application.

use std::net::SocketAddr;

use crate::actors::client::Request;
use crate::actors::process::Process;
use crate::services::node::Node;
use crate::services::python::Python;
use crate::wire::message::Message;
use crate::wire::raw_client::exchange;

const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
/// The request of an application, without its name.
const GRANT: &str = "grant_type=client_credentials&scope=orders%3Aread\
                     &client_secret=a+secret+of+the+test%2C+and+of+nothing+else";

/// A running issuer.
#[derive(Debug)]
pub struct PeerIssuer {
    _process: Process,
    address: SocketAddr,
}

impl PeerIssuer {
    /// Starts `oidc-provider`; returns `None`, with a SKIP line, where it is not installed.
    pub fn oidc_provider(audience: &str) -> Option<Self> {
        let node = Node::with("oidc-provider")?;
        Some(Self::announced(
            node.start("oidc_provider.mjs", &[audience]),
        ))
    }

    /// Starts `oidc-provider` with pages on which people log in, and clients register.
    pub fn with_pages(audience: &str) -> Option<Self> {
        let node = Node::with("oidc-provider")?;
        Some(Self::announced(
            node.start("oidc_provider.mjs", &[audience, "pages"]),
        ))
    }

    /// Starts `oidc-provider` with pages, and with a client whose logouts it sends to this URI.
    pub fn with_logout(audience: &str, uri: &str) -> Option<Self> {
        let node = Node::with("oidc-provider")?;
        Some(Self::announced(
            node.start("oidc_provider.mjs", &[audience, "pages", uri]),
        ))
    }

    /// Starts an issuer made of Authlib; returns `None`, with a SKIP line, where it is not
    /// installed.
    pub fn authlib(audience: &str) -> Option<Self> {
        let python = Python::with_oauth()?;
        Some(Self::announced(
            python.start("authlib_issuer.py", &[audience]),
        ))
    }

    fn announced(mut process: Process) -> Self {
        let address = process.announced("listening on ");
        Self {
            address: address.parse().expect("an address"),
            _process: process,
        }
    }

    /// Returns its `iss`, which is its address.
    pub fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns its address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the request of an application's token.
    pub fn token_request(&self, application: &str) -> Vec<u8> {
        let form = format!("{GRANT}&client_id={application}");
        let request = Request::new("POST", "/token").line(FORM).body(form);
        request.bytes(&self.address.to_string())
    }

    /// Requests a token for the application that each issuer knows.
    pub fn token(&self) -> String {
        let request = self.token_request("jobs");
        token_of(&exchange(self.address, "POST", &request))
    }
}

/// Returns the token of a response.
///
/// # Panics
/// When the issuer has rejected the request.
pub fn token_of(response: &Message) -> String {
    assert_eq!(response.status(), 200, "{}", response.text());
    let token = response.json()["access_token"].clone();
    token.as_str().expect("a token").to_owned()
}
