//! The service as an OAuth protected resource: its metadata (RFC 9728), which clients without a token
//! read, and the parameter of the challenge that leads to it.

use http::Method;
use runtime::net::server_url::{ServerUrl, ServerUrlError};
use serde::Serialize;
use wire::http::host;
use wire::http::request_path::RequestPath;
use wire::rejection::Rejection;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The metadata of `--resource`, made with the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProtectedResource {
    /// With the resource's path at the end, and without it for clients that look there.
    paths: [String; 2],
    document: Vec<u8>,
    challenge: String,
    names_server: bool,
}

/// The error of a resource that clients could not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResourceError {
    #[error("expected a URL such as https://api.example/orders, without a query or a fragment")]
    NotAUrl,
    #[error("expected a host with a port up to 65535")]
    Host,
    #[error(
        "expected a path in ASCII, without dot segments, empty segments and needless escapes: clients write it in different ways"
    )]
    Path,
    #[error("expected https; http is for localhost")]
    PlainHttp,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    resource: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    authorization_servers: &'a [&'a str],
    bearer_methods_supported: [&'static str; 1],
}

impl ProtectedResource {
    /// Builds the metadata of the service at the URL `resource`; of `issuers` those that are URLs
    /// are its authorization servers.
    ///
    /// # Errors
    /// [`ResourceError`].
    pub(crate) fn new(resource: &str, issuers: &[String]) -> Result<Self, ResourceError> {
        let url = url(resource)?;
        if url.is_plain_over_a_network() {
            return Err(ResourceError::PlainHttp);
        }
        check_url(&url)?;
        let servers: Vec<&str> = issuers
            .iter()
            .map(String::as_str)
            .filter(|issuer| self::url(issuer).is_ok())
            .collect();
        let document = Document {
            resource,
            authorization_servers: &servers,
            bearer_methods_supported: ["header"],
        };
        let path = url.target().path().trim_end_matches('/');
        let with_path = format!("{WELL_KNOWN}{path}");
        let (scheme, authority) = (url.scheme(), url.authority());
        Ok(Self {
            challenge: format!("resource_metadata=\"{scheme}://{authority}{with_path}\""),
            paths: [with_path, WELL_KNOWN.to_owned()],
            document: serde_json::to_vec(&document).unwrap_or_default(),
            names_server: !servers.is_empty(),
        })
    }

    /// Returns true for a path of the metadata, which never reaches the service.
    pub(crate) fn is_at(&self, path: &[u8]) -> bool {
        self.paths.iter().any(|known| known.as_bytes() == path)
    }

    /// Returns the document for a request to one of the paths.
    ///
    /// # Errors
    /// [`Rejection::MethodNotAllowed`] for other methods than GET and HEAD.
    pub(crate) fn respond(&self, method: &Method) -> Result<Vec<u8>, Rejection> {
        match *method {
            Method::GET | Method::HEAD => Ok(self.document.clone()),
            _ => Err(Rejection::MethodNotAllowed),
        }
    }

    /// Returns true if clients learn from the document where to get a token.
    pub(crate) const fn names_server(&self) -> bool {
        self.names_server
    }

    /// Returns the parameter of a challenge (RFC 9728 §5.1).
    pub(crate) fn challenge(&self) -> &str {
        &self.challenge
    }
}

/// Parses a URL that clients can reach.
fn url(text: &str) -> Result<ServerUrl, ResourceError> {
    match ServerUrl::of_http(text) {
        Ok(url) if !text.contains(['?', '"', '\\']) => Ok(url),
        Err(ServerUrlError::Port(_)) => Err(ResourceError::Host),
        _ => Err(ResourceError::NotAUrl),
    }
}

/// Accepts what every client and proxy reads alike.
fn check_url(url: &ServerUrl) -> Result<(), ResourceError> {
    host::check(Some(url.authority().as_str().as_bytes())).map_err(|_| ResourceError::Host)?;
    let path = url.target().path();
    let checked = RequestPath::parse(path.as_bytes()).map_err(|_| ResourceError::Path)?;
    let differs = |path: &str| path.contains(['%', '[', ']', '|', '^']);
    let is_plain = checked.written().is_some_and(|path| !differs(path));
    (path.is_ascii() && is_plain)
        .then_some(())
        .ok_or(ResourceError::Path)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::{Value, json};

    use super::*;

    fn document(resource: &ProtectedResource) -> Value {
        serde_json::from_slice(&resource.respond(&Method::GET).unwrap()).unwrap()
    }

    #[test]
    fn rfc_9728_the_metadata_stands_before_the_path_of_the_resource() {
        for (url, path, metadata) in [
            (
                "https://api.example/orders",
                "/.well-known/oauth-protected-resource/orders",
                "https://api.example/.well-known/oauth-protected-resource/orders",
            ),
            (
                "https://api.example",
                "/.well-known/oauth-protected-resource",
                "https://api.example/.well-known/oauth-protected-resource",
            ),
            (
                "http://127.0.0.1:8080/",
                "/.well-known/oauth-protected-resource",
                "http://127.0.0.1:8080/.well-known/oauth-protected-resource",
            ),
        ] {
            let issuers = ["https://login.example", "auth"].map(str::to_owned);
            let resource = ProtectedResource::new(url, &issuers).unwrap();
            assert!(resource.is_at(path.as_bytes()), "{url}");
            assert!(resource.is_at(b"/.well-known/oauth-protected-resource"));
            assert!(!resource.is_at(b"/.well-known/oauth-protected-resource/"));
            assert!(!resource.is_at(b"/orders"));
            let challenge = format!("resource_metadata=\"{metadata}\"");
            assert_eq!(resource.challenge(), challenge);
            assert_eq!(
                document(&resource),
                json!({
                    "resource": url,
                    "authorization_servers": ["https://login.example"],
                    "bearer_methods_supported": ["header"],
                })
            );
        }
    }

    #[test]
    fn an_issuer_that_is_a_name_is_left_out() {
        let resource = ProtectedResource::new("https://api.example", &["auth".to_owned()]).unwrap();
        assert_eq!(document(&resource)["authorization_servers"], Value::Null);
        assert!(!resource.names_server());
    }
}
