//! Issuers of others, as processes: they publish discovery documents and issue tokens to an
//! application.

use std::net::SocketAddr;

use crate::actors::client::Request;
use crate::actors::process::Process;
use crate::services::node::Node;
use crate::services::python::Python;
use crate::wire::raw_client::exchange;

const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
/// The request of the one application that each issuer knows.
const GRANT: &str = "grant_type=client_credentials&client_id=jobs&scope=orders%3Aread\
                     &client_secret=a+secret+of+the+test%2C+and+of+nothing+else";

/// A running issuer.
#[derive(Debug)]
pub struct PeerIssuer {
    process: Process,
    address: SocketAddr,
    stage: usize,
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
            process,
            stage: 0,
        }
    }

    /// Returns its `iss`, which is its address.
    pub fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests a token for the application.
    ///
    /// # Panics
    /// When the issuer rejects it.
    pub fn token(&self) -> String {
        let request = Request::new("POST", "/token").line(FORM).body(GRANT);
        let bytes = request.bytes(&self.address.to_string());
        let response = exchange(self.address, "POST", &bytes);
        assert_eq!(response.status(), 200, "{}", response.text());
        let token = response.json()["access_token"].clone();
        token.as_str().expect("a token").to_owned()
    }

    /// Takes the next step of a rotation: `key-2` is published, then signs, then stands alone.
    pub fn rotate(&mut self) {
        self.stage += 1;
        self.process.signal("HUP");
        self.process.announced(&format!("stage {}", self.stage));
    }
}
