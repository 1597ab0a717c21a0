//! `postern-k8s webhook`: the admission webhook of a cluster. It puts the sidecar into labelled pods as
//! `inject` does, and rejects what it cannot protect.

mod reviews;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use postern_process::clock::unix_now;
use postern_process::exit::ExitError;
use postern_process::signals::{Terminations, signal_error};
use postern_process::supervisor::{FirstFailure, Supervisor, supervisor};
use postern_transport::admin;
use postern_transport::admin::health::{Condition, Health};
use postern_transport::drain::DrainTrigger;
use postern_transport::http_port::HttpPort;
use postern_transport::net::connection_slots::ConnectionSlots;
use postern_transport::net::listener::{self, Port};
use postern_transport::tls::{CertificateMetrics, HTTP_1, RequestedCertificates, ServerTls};
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::cli::WebhookArgs;
use crate::container::settings::Settings;

/// The name of the port in the log.
const PORT: &str = "webhook port";
/// Connections at a time, of which the API server keeps a few. A peer that sends nothing has one for
/// [`listener::CLIENT_IDLE`], or until another peer needs it.
const MAX_CONNECTIONS: usize = 128;
/// Timeout of a handshake, of a head, and of a blocked write: the API server waits for 10 s by default.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The time for reviews in flight at the stop; the API server retries elsewhere.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The API server learns of the end of a replica by its connections alone.
const LAME_DUCK: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Start errors; later only a background task that has ended.
pub(crate) fn run(args: &WebhookArgs) -> Result<(), ExitError> {
    tokio::runtime::Runtime::new()
        .map_err(|error| ExitError::Software(format!("no runtime: {error}")))?
        .block_on(serve(args))
}

async fn serve(args: &WebhookArgs) -> Result<(), ExitError> {
    let terminations = Terminations::install().map_err(signal_error)?;
    let settings = Settings::new(&args.sidecars)?;
    let tls = server_tls(args)?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = %args.listen,
        admin_listen = %args.admin_listen,
        image = settings.image,
        "starting"
    );
    if let Some(warning) = tls.ending(unix_now()) {
        warn!("{warning}");
    }
    let public = listener::bind(Port::Public, args.listen)?;
    let admin = listener::bind(Port::Admin, args.admin_listen)?;
    let (background, ends) = supervisor();
    let health = Health::new();
    let mut registry = Registry::with_prefix("postern_webhook");
    let routes = reviews::routes(settings, &mut registry);
    follow_tls(&tls, &mut registry, &health, &background)?;

    let serving = health.condition("serving", "starting");
    let (drain, admin_drain) = (DrainTrigger::default(), DrainTrigger::default());
    let format = args.logs.log_format;
    listener::announce(Port::Admin, listener::address(&admin)?, format);
    admin::spawn(
        admin,
        &health,
        Arc::new(registry),
        Router::new(),
        admin_drain.clone(),
        &background,
    );
    listener::announce(Port::Public, listener::address(&public)?, format);
    let accepting = serve_reviews(public, routes, tls, drain.clone(), &background);
    health.set_started();
    serving.set_ready();

    let outcome = until_stopped(terminations, ends, &serving).await;
    drain.stop_accepting();
    admin_drain.stop_accepting();
    // A failure while it stops changes nothing: the process ends in any case.
    let _ = accepting.await;
    info!("stopped");
    outcome
}

/// Returns the TLS settings of the webhook's port.
///
/// # Errors
/// For missing or unusable files.
fn server_tls(args: &WebhookArgs) -> Result<Arc<ServerTls>, ExitError> {
    let clients = RequestedCertificates {
        ca: args.client_ca.clone(),
        mode: None,
    };
    let missing = "--tls-cert and --tls-key are missing: the API server speaks TLS";
    args.tls
        .server(clients, HTTP_1)?
        .ok_or_else(|| ExitError::Config(missing.to_owned()))
}

/// Follows the TLS files for as long as the process lives, and registers their metrics.
///
/// # Errors
/// If the handler of SIGHUP cannot be installed.
fn follow_tls(
    tls: &Arc<ServerTls>,
    registry: &mut Registry,
    health: &Health,
    background: &Supervisor,
) -> Result<(), ExitError> {
    let certificate = CertificateMetrics::default();
    certificate.register(registry);
    let following = Arc::clone(tls)
        .follow(certificate, health.files("tls_files").reloads())
        .map_err(signal_error)?;
    background.spawn_critical("following the TLS files", following);
    Ok(())
}

/// Serves reviews in a task of its own, until `drain` stops accepting. The end of the program waits for
/// the end of this task.
fn serve_reviews(
    public: TcpListener,
    routes: Router,
    tls: Arc<ServerTls>,
    drain: DrainTrigger,
    background: &Supervisor,
) -> JoinHandle<()> {
    let port = HttpPort {
        tls: Some(tls),
        keep_alive: true,
        drain_timeout: DRAIN_TIMEOUT,
        drain,
        ..HttpPort::new(PORT, routes, TIMEOUT)
    };
    let slots = ConnectionSlots::new(PORT, MAX_CONNECTIONS);
    let slot = move |peer| {
        let slots = slots.clone();
        async move { slots.take(peer, false).await }
    };
    port.spawn(public, slot, background)
}

/// Waits for a signal to end, or a failure in the background. After a signal reviews are served for a
/// while: the API server sends them until it learns that this replica ends.
async fn until_stopped(
    mut terminations: Terminations,
    ends: FirstFailure,
    serving: &Condition,
) -> Result<(), ExitError> {
    tokio::select! {
        _ = terminations.next() => {}
        failure = ends.first() => return Err(failure),
    }
    serving.set_not_ready("stopping");
    tokio::select! {
        () = tokio::time::sleep(LAME_DUCK) => {}
        _ = terminations.next() => {}
    }
    Ok(())
}
