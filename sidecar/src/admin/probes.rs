//! `GET /probe/NAME`: forwards a probe of the service, so that it competes with no client.
//!
//! Nothing of a client reaches the service, and only the status comes back. Clients at the same time
//! share one request, so that no number of them keeps the kubelet from its response.

mod health_call;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{BoxError, Router};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use postern_contract::settings::probes::Action;
use postern_process::exit::ExitError;
use postern_transport::http_client::{
    ClientSettings, HttpClient, HttpRequest, MaxLength, TransportError, Trust, Url,
};
use postern_transport::tls::peer::PeerFiles;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio_util::either::Either;

use crate::config::probes::ServiceProbe;
use crate::upstream::{Endpoint, UpstreamAddress};

/// Added to the client's timeout, so that the probe's own timeout, which has a status, comes first.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(1);
/// Time for which an outcome is shared: below a second, the shortest period of Kubernetes.
const SHARED: Duration = Duration::from_millis(500);
/// Bytes of a body that are read, as the kubelet does.
const MAX_BODY_BYTES: usize = 10 * 1024;

/// A probe, and its last request.
struct ForwardedProbe {
    action: Arc<PreparedAction>,
    timeout: Duration,
    last: Mutex<Option<Flight>>,
}

/// The action of a probe with all that it needs.
enum PreparedAction {
    Http(Box<HttpProbe>),
    Tcp(Endpoint),
    Grpc(Endpoint, String),
}

/// A request of HTTP/1.1.
struct HttpProbe {
    /// Locked for the length of a request: only one is sent at a time.
    client: tokio::sync::Mutex<HttpClient>,
    url: String,
    headers: HeaderMap,
}

/// A request to the service; `None` until it has its outcome.
type Flight = watch::Receiver<Option<Outcome>>;

#[derive(Debug, Clone, Copy)]
struct Outcome {
    status: StatusCode,
    /// The reason, for the body; empty if the status is the service's.
    why: &'static str,
    at: Instant,
}

/// Returns a route for each probe, open to any peer.
///
/// # Errors
/// [`ExitError::Config`] for a probe that is no request.
pub(crate) fn routes(probes: Vec<ServiceProbe>) -> Result<Router, ExitError> {
    let mut routes = Router::new();
    for probe in probes {
        let path = format!("/probe/{}", probe.name);
        let forwarded = ForwardedProbe::new(probe)
            .map_err(|error| ExitError::Config(format!("--probes: {error}")))?;
        routes = routes.route(&path, get(respond).with_state(Arc::new(forwarded)));
    }
    Ok(routes)
}

async fn respond(State(probe): State<Arc<ForwardedProbe>>) -> Response {
    let outcome = probe.outcome().await;
    (outcome.status, outcome.why).into_response()
}

impl ForwardedProbe {
    fn new(probe: ServiceProbe) -> Result<Self, String> {
        let action = match probe.action {
            Action::Http { path, headers, .. } => {
                let http = HttpProbe::new(probe.address, &path, headers, probe.timeout)?;
                PreparedAction::Http(Box::new(http))
            }
            Action::Tcp => PreparedAction::Tcp(probe.address.endpoint),
            Action::Grpc(service) => PreparedAction::Grpc(probe.address.endpoint, service),
        };
        Ok(Self {
            action: Arc::new(action),
            timeout: probe.timeout,
            last: Mutex::default(),
        })
    }

    /// Returns the outcome of the request in flight, or of one that ended just now, or of a new one.
    async fn outcome(&self) -> Outcome {
        let mut flight = {
            let mut last = self.last.lock();
            match last.take().filter(is_shared) {
                Some(flight) => last.insert(flight).clone(),
                None => last.insert(self.begin()).clone(),
            }
        };
        let outcome = flight.wait_for(Option::is_some).await;
        outcome
            .ok()
            .and_then(|outcome| *outcome)
            .unwrap_or_else(|| Outcome::bad_gateway("the probe was broken off\n"))
    }

    /// Sends the request in a task of its own, which outlives the client that began it.
    fn begin(&self) -> Flight {
        let (ended, flight) = watch::channel(None);
        let (action, timeout) = (Arc::clone(&self.action), self.timeout);
        tokio::spawn(async move {
            let outcome = match tokio::time::timeout(timeout, action.status()).await {
                Ok(status) => status,
                Err(_) => Outcome::new(
                    StatusCode::GATEWAY_TIMEOUT,
                    "the service did not respond in time\n",
                ),
            };
            ended.send_replace(Some(outcome));
        });
        flight
    }
}

impl HttpProbe {
    fn new(
        mut origin: UpstreamAddress,
        path: &str,
        headers: HeaderMap,
        timeout: Duration,
    ) -> Result<Self, String> {
        let mut settings = ClientSettings {
            // The kubelet verifies no certificate of a probe either.
            trust: Trust::Anyone,
            timeout: timeout.saturating_add(TIMEOUT_MARGIN),
            ..ClientSettings::default()
        };
        if let Endpoint::Unix(socket) = origin.endpoint {
            settings.socket = Some(socket);
            origin.endpoint = Endpoint::Tcp {
                host: "localhost".to_owned(),
                port: 80,
            };
        }
        let url = format!("{origin}{path}");
        url.parse::<Url>().map_err(|error| error.to_string())?;
        let mut client = HttpClient::new(settings, PeerFiles::default());
        client.open()?;
        Ok(Self {
            client: tokio::sync::Mutex::new(client),
            url,
            headers,
        })
    }

    /// Returns the status; reads the beginning of the body too, because a service that breaks it off is not well.
    async fn status(&self) -> Result<StatusCode, TransportError> {
        let request = HttpRequest {
            headers: Some(&self.headers),
            max_length: MaxLength::Cut(MAX_BODY_BYTES),
            ..HttpRequest::get(&self.url)
        };
        let response = self.client.lock().await.send(request).await?;
        Ok(response.status)
    }
}

fn is_shared(flight: &Flight) -> bool {
    match *flight.borrow() {
        Some(outcome) => outcome.at.elapsed() < SHARED,
        // A closed channel without an outcome: the task of the request is gone.
        None => flight.has_changed().is_ok(),
    }
}

impl PreparedAction {
    async fn status(&self) -> Outcome {
        let status = match self {
            Self::Http(probe) => probe.status().await.map_err(BoxError::from),
            Self::Tcp(endpoint) => connect(endpoint).await.map(|_| StatusCode::OK),
            Self::Grpc(endpoint, service) => grpc_status(endpoint, service).await,
        };
        match status {
            Ok(status) if status.is_informational() => {
                Outcome::bad_gateway("the service changed the protocol\n")
            }
            Ok(status) => Outcome::new(status, ""),
            Err(error) => {
                tracing::debug!(?error, "a probe of the service failed");
                Outcome::bad_gateway(
                    "the service cannot be reached, or does not speak the probe's protocol\n",
                )
            }
        }
    }
}

async fn connect(endpoint: &Endpoint) -> Result<Either<TcpStream, UnixStream>, BoxError> {
    Ok(match endpoint {
        Endpoint::Tcp { host, port } => {
            Either::Left(TcpStream::connect((host.as_str(), *port)).await?)
        }
        Endpoint::Unix(path) => Either::Right(UnixStream::connect(path).await?),
    })
}

/// Asks gRPC's health service, without TLS as the kubelet does.
async fn grpc_status(endpoint: &Endpoint, service: &str) -> Result<StatusCode, BoxError> {
    let is_serving = health_call::is_serving(connect(endpoint).await?, service).await?;
    Ok(if is_serving {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    })
}

impl Outcome {
    fn new(status: StatusCode, why: &'static str) -> Self {
        Self {
            status,
            why,
            at: Instant::now(),
        }
    }

    fn bad_gateway(why: &'static str) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, why)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::Notify;
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn a_thousand_clients_at_once_are_one_request() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (received, respond) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counted, waiting) = (Arc::clone(&received), Arc::clone(&respond));
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
                counted.fetch_add(1, Ordering::Relaxed);
                waiting.notified().await;
                stream
                    .write_all(b"HTTP/1.1 204 Fine\r\n\r\n")
                    .await
                    .unwrap();
            }
        });
        let probe = ForwardedProbe::new(ServiceProbe {
            name: "live".to_owned(),
            address: address.parse().unwrap(),
            action: Action::Http {
                scheme: None,
                path: "/healthz".to_owned(),
                headers: HeaderMap::new(),
            },
            timeout: Duration::from_secs(30),
        });
        let probe = Arc::new(probe.unwrap());
        let request = |probe: &Arc<ForwardedProbe>| {
            let probe = Arc::clone(probe);
            async move { probe.outcome().await.status }
        };
        // A client that leaves takes the request from no other.
        let mut first = JoinSet::new();
        first.spawn(request(&probe));
        while received.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        first.shutdown().await;
        let mut others = JoinSet::new();
        for _ in 0..1000 {
            others.spawn(request(&probe));
        }
        respond.notify_one();
        let outcomes = others.join_all().await;
        assert_eq!(outcomes, [StatusCode::NO_CONTENT; 1000]);
        assert_eq!(received.load(Ordering::Relaxed), 1);
    }
}
