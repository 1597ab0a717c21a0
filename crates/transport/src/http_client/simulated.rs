//! The network of `tests/simulation` in place of sockets. Built for the simulation alone.

#![expect(clippy::expect_used, reason = "a part of a test")]

use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use reqwest::{Client, Request, RequestBuilder, Response};

tokio::task_local! {
    static NETWORK: Arc<dyn Network>;
}

/// The response of a simulated server; `None` where none comes.
pub type Responding = Pin<Box<dyn Future<Output = Option<http::Response<Bytes>>> + Send>>;

/// The way from one simulated process to the servers.
pub trait Network: Send + Sync {
    /// Carries a request.
    fn carry(&self, request: Request) -> Responding;
}

/// Runs work whose requests go this way.
pub fn within<T>(
    network: Arc<dyn Network>,
    work: impl Future<Output = T> + Send,
) -> impl Future<Output = T> + Send {
    NETWORK.scope(network, work)
}

/// Returns an error as only the library makes them, by an unusable address.
fn no_response() -> reqwest::Error {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT
        .get_or_init(|| {
            Client::builder()
                .tls_certs_only([])
                .build()
                .expect("a client")
        })
        .get("no address")
        .build()
        .expect_err("no address")
}

/// Sends a request.
pub(super) async fn send(request: RequestBuilder) -> reqwest::Result<Response> {
    let Ok(network) = NETWORK.try_with(Arc::clone) else {
        return request.send().await;
    };
    match network.carry(request.build()?).await {
        Some(response) => Ok(response.into()),
        None => Err(no_response()),
    }
}
