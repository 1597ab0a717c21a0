//! Every connection of a client: wraps its transport, then leaves it to the proxy.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use contract::rejection::Rejection;
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::proxy::HttpProxy;
use pingora::server::ShutdownWatch;

use crate::access_log::{AccessLog, Line};
use crate::answer;
use crate::client_stream::{ClientStream, MalformedRequests};
use crate::metrics::Metrics;
use crate::outcome::Outcome;
use crate::proxy::AuthProxy;

/// What the listening socket hands its connections to.
pub(crate) struct ClientConnections {
    proxy: Arc<HttpProxy<AuthProxy>>,
    malformed: Arc<dyn MalformedRequests>,
}

impl ClientConnections {
    pub(crate) fn new(
        proxy: HttpProxy<AuthProxy>,
        metrics: Metrics,
        access_log: AccessLog,
    ) -> Self {
        Self {
            proxy: Arc::new(proxy),
            malformed: Arc::new(Refusals {
                metrics,
                access_log,
            }),
        }
    }
}

#[async_trait]
impl ServerApp for ClientConnections {
    async fn process_new(
        self: &Arc<Self>,
        transport: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let stream = ClientStream::new(transport, Arc::clone(&self.malformed));
        self.proxy.process_new(Box::new(stream), shutdown).await
    }

    /// Closes the connections that wait for their next request.
    async fn cleanup(&self) {
        self.proxy.cleanup().await;
    }
}

/// The answer to what is no HTTP, counted and logged like any other refusal.
#[derive(Debug)]
struct Refusals {
    metrics: Metrics,
    access_log: AccessLog,
}

impl MalformedRequests for Refusals {
    fn refuse(&self) -> Bytes {
        let rejection = Rejection::RequestMalformed;
        let outcome = Outcome::Refused(rejection);
        self.metrics.request_ended(outcome);
        self.access_log.record(outcome, || Line {
            request: None,
            status: Some(rejection.status().as_u16()),
            cause: None,
        });
        answer::to_no_request()
    }
}
