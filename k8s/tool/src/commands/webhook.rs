//! `postern-k8s webhook`: the admission webhook of a cluster. It puts the sidecar into labelled pods as
//! `inject` does, and rejects what it cannot protect.

mod metrics;
mod server;

use std::sync::Arc;
use std::time::Duration;

use runtime::admin;
use runtime::admin::health::Health;
use runtime::files::file_watch::{self, PollTimer};
use runtime::net::listener::{self, Port};
use runtime::process::clock::unix_now;
use runtime::process::exit::ExitError;
use runtime::process::signals::Terminations;
use runtime::process::supervisor::supervisor;
use runtime::tls;
use runtime::tls::clients::{ClientTls, ClientTlsSettings, HTTP_1};
use tokio::sync::watch;
use tracing::{info, warn};

use self::metrics::WebhookMetrics;
use self::server::Reviews;
use crate::cli::WebhookArgs;
use crate::settings::Settings;

/// The API server learns of the end of a replica by its connections alone.
const LAME_DUCK: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Start errors; later only a background task that has ended.
pub(crate) fn run(args: &WebhookArgs) -> Result<(), ExitError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| ExitError::Software(format!("no runtime: {error}")))?;
    runtime.block_on(serve(args))
}

async fn serve(args: &WebhookArgs) -> Result<(), ExitError> {
    let no_signals =
        |error: std::io::Error| ExitError::Software(format!("signals cannot be received: {error}"));
    let mut terminations = Terminations::install().map_err(no_signals)?;
    let certificate = args.tls.certificate()?.ok_or_else(|| {
        ExitError::Config(
            "--tls-cert and --tls-key are missing: the API server speaks TLS".to_owned(),
        )
    })?;
    let clients = Arc::new(ClientTls::new(&ClientTlsSettings {
        certificate: Arc::clone(&certificate),
        protocols: HTTP_1,
        client_ca: args.client_ca.clone(),
    })?);
    let settings = Settings::new(&args.sidecars)?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = %args.listen,
        admin_listen = %args.admin_listen,
        image = settings.image,
        "starting"
    );
    if let Some(warning) = certificate.expired(unix_now()) {
        warn!("{warning}");
    }
    let format = args.logs.log_format;
    let public = listener::bind(Port::Public, args.listen)?;
    let admin = listener::bind(Port::Admin, args.admin_listen)?;
    let (background, ends) = supervisor();
    let metrics = WebhookMetrics::default();
    let following = tls::follow(certificate, metrics.tls.clone()).map_err(no_signals)?;
    background.spawn_critical("following the TLS certificate", following);
    if let Some(file) = args.client_ca.clone() {
        let timer = PollTimer::start().map_err(no_signals)?;
        let tls = Arc::clone(&clients);
        let reload = move || tls.reload_client_roots(&file);
        let following = file_watch::follow(timer, reload, |transition| {
            transition.log("authorities of clients");
        });
        background.spawn_critical("following the authorities of clients", following);
    }

    let health = Health::new();
    let serving = health.condition("serving", "starting");
    let stop = watch::Sender::new(());
    listener::announce(Port::Admin, &admin, format)?;
    admin::spawn(admin, &health, metrics.registry(), &stop, &background);
    let reviews = Reviews::new(settings, metrics, clients);
    listener::announce(Port::Public, &public, format)?;
    let accepting = reviews.serve(public, stop.subscribe());
    let accepting = background.spawn_critical_until_shutdown("the port of reviews", accepting);
    health.set_started();
    serving.set_ready();

    let outcome = tokio::select! {
        _ = terminations.next() => Ok(()),
        failure = ends.first() => Err(failure),
    };
    if outcome.is_ok() {
        serving.set_not_ready("stopping");
        tokio::select! {
            () = tokio::time::sleep(LAME_DUCK) => {}
            _ = terminations.next() => {}
        }
    }
    stop.send_replace(());
    let _ = accepting.await;
    info!("stopped");
    outcome
}
