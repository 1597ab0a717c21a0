//! `serve`: builds the parts and runs them until a signal.

mod registration;
pub(crate) mod synchronization;

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use postern_contract::rejection::Help;
use postern_process::command_line::{MAX_CONFIG_BYTES, config_file, given};
use postern_process::exit::ExitError;
use postern_process::files::bounded_read;
use postern_process::files::file_watch::PolledFiles;
use postern_process::logs::subscriber::LogFormat;
use postern_process::signals::{Termination, Terminations, signal_error};
use postern_process::supervisor::{FirstFailure, Supervisor, supervisor};
use postern_process::tasks;
use postern_token::digest::{Digest, sha256};
use postern_token::times::moment;
use postern_transport::admin::health::{Condition, Health};
use postern_transport::admin::page::{OwnPart, SETTINGS, Section, StatusPage};
use postern_transport::drain::DrainTrigger;
use postern_transport::http_port::HttpPort;
use postern_transport::net::listener::{self, Port};
use postern_transport::{admin, traces};
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use self::synchronization::Synchronization;
use crate::accounts::users::reload;
use crate::cli::{Cli, ServeArgs};
use crate::config::{Config, warnings};
use crate::http;
use crate::http::app::App;
use crate::http::middleware::access_log::reject_unparsed;
use crate::keys::published::LiveKeys;
use crate::keys::ring::rotation::RotationPolicy;
use crate::server::registration::Registration;
use crate::store::directory::Access;
use crate::store::open_store::OpenStore;
use crate::telemetry::audit;
use crate::telemetry::metrics::PREFIX;

const CHANGED: &str = "the settings file has changed since the start: a restart applies it; try it with `check` first";
/// Longest wait for requests in flight. They are short, and orchestrators grant 10 to 30 seconds in
/// all.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Start errors; later only a background task that has ended.
pub(crate) async fn serve(args: &ServeArgs) -> Result<(), ExitError> {
    let config = Config::from_args(args)?;
    // Before the store, which may be waited for.
    let settings = SettingsFile::at_the_start();
    let mut terminations = Terminations::install().map_err(signal_error)?;
    // Before the port is taken: a former server on it may be ending.
    let location = config.store.clone();
    let opened = tokio::select! {
        opened = tasks::blocking(move || location.open(Access::Serve)) => opened,
        _ = terminations.next() => {
            info!("stopped before the store was free");
            return Ok(());
        }
    };
    let store = opened.map_err(|error| ExitError::Software(error.to_string()))??;
    let public = listener::bind(Port::Public, args.listening.listen)?;
    serve_on(public, args, config, store, settings, terminations).await
}

/// Serves on a listener that is bound already. The signals are received before the addresses are printed: a
/// reader of them may send one at once.
///
/// # Errors
/// The errors of [`serve`].
pub(crate) async fn serve_on(
    public: TcpListener,
    args: &ServeArgs,
    config: Config,
    store: OpenStore,
    settings: Option<SettingsFile>,
    mut terminations: Terminations,
) -> Result<(), ExitError> {
    let started = Instant::now();
    let (background, ends) = supervisor();
    log_start(args, &config);
    let app = Arc::new(App::new(config, store));
    let health = Health::new();
    let mut synchronization = Synchronization::new(Arc::clone(&app), &health);
    for issuer in &app.config.foreign_issuers {
        issuer.prepare(&health);
    }
    let admin_drain = DrainTrigger::default();
    // Probes first: a process waiting for a stalled store must not seem to hang.
    let admin_task = spawn_admin(args, &app, &health, started, &admin_drain, &background)?;
    tokio::select! {
        started = synchronization.start() => started?,
        _ = terminations.next() => {
            info!("stopped before the store was read for the first time");
            return Ok(());
        }
    }
    follow_files(&app, settings, &health, &background)?;
    background.spawn_critical(
        "the synchronization",
        synchronization.run(app.config.store_poll_interval),
    );
    let drain = DrainTrigger::default();
    let end = shutdown(
        terminations,
        ends,
        registration(&public, &app, &background)?,
        health.condition("serving", "starting"),
        drain.clone(),
        args.lame_duck.duration(),
    );
    let outcome = serve_public(app, public, args.logs.log_format, &health, drain, end).await;

    traces::flush().await;
    // The admin port closes after the public port: probes are served to the end.
    admin_drain.stop_accepting();
    let _ = tokio::time::timeout(Duration::from_secs(2), admin_task).await;
    info!(uptime_s = started.elapsed().as_secs(), "stopped");
    outcome
}

fn log_start(args: &ServeArgs, config: &Config) {
    info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = %args.listening.listen,
        admin_listen = %args.listening.admin_listen,
        store = %config.store,
        users = %config.users_location,
        "starting"
    );
    for warning in warnings(args, config) {
        warn!("{warning}");
    }
}

/// Serves the admin port until `drain`.
fn spawn_admin(
    args: &ServeArgs,
    app: &App,
    health: &Health,
    started: Instant,
    drain: &DrainTrigger,
    background: &Supervisor,
) -> Result<JoinHandle<()>, ExitError> {
    let port = listener::bind(Port::Admin, args.listening.admin_listen)?;
    listener::announce(Port::Admin, listener::address(&port)?, args.logs.log_format);
    let metrics = Arc::new(metrics_registry(app));
    let page = status_page(args, app, health, &metrics, started)?;
    Ok(admin::spawn(
        port,
        health,
        metrics,
        page,
        drain.clone(),
        background,
    ))
}

/// Returns the route of the status page.
fn status_page(
    args: &ServeArgs,
    app: &App,
    health: &Health,
    metrics: &Arc<Registry>,
    started: Instant,
) -> Result<Router, ExitError> {
    let page = StatusPage {
        started,
        health: health.clone(),
        metrics: Arc::clone(metrics),
        prefix: PREFIX,
        outcome: "code",
        rejections: "rejections_total",
        further: Some(("Logouts at other issuers", "backchannel_logouts_total")),
        help: Help::texts,
    };
    let program = concat!("Postern auth-server ", env!("CARGO_PKG_VERSION"));
    let title = format!("{program} {}", app.config.context_path);
    let settings = given::<Cli>(&app.config.printable(args)?);
    let keys = Arc::clone(&app.live_keys);
    let policy = app.config.rotation;
    Ok(page.routes(move || OwnPart {
        title: title.clone(),
        notice: None,
        sections: vec![
            Section::text("Keys", &list_keys(&keys, &policy)),
            Section::text(SETTINGS, &settings),
        ],
    }))
}

/// Returns a line for each key, and one for the next change.
fn list_keys(keys: &LiveKeys, policy: &RotationPolicy) -> String {
    let keys = keys.load();
    let Some(keys) = &*keys else {
        return String::new();
    };
    let mut lines = Vec::new();
    for row in keys.ring.rows() {
        lines.push(row.to_string());
    }
    if let Some(due) = keys.ring.next_due(policy) {
        lines.push(format!("next change: {}", moment(due)));
    }
    lines.join("\n")
}

/// Registers this server, if a registry is configured.
fn registration(
    public: &TcpListener,
    app: &App,
    background: &Supervisor,
) -> Result<Option<Registration>, ExitError> {
    let config = &app.config;
    let Some(registry) = &config.registry else {
        return Ok(None);
    };
    Ok(Some(Registration::start(
        registry.settings.clone(),
        registry.advertised.instance(
            listener::address(public)?.port(),
            &config.context_path,
            config.tls.is_some(),
        ),
        Arc::clone(&app.live_keys),
        app.metrics.clone(),
        background,
    )))
}

/// Follows the settings, the users, the applications and the certificate in their files.
fn follow_files(
    app: &App,
    settings: Option<SettingsFile>,
    health: &Health,
    background: &Supervisor,
) -> Result<(), ExitError> {
    let config = &app.config;
    let metrics = &app.metrics;
    if let Some(settings) = settings {
        let following = settings
            .follow(health.files("configuration"))
            .map_err(signal_error)?;
        background.spawn_critical("following the settings file", following);
    }
    match &app.recorded_users {
        None => drop(metrics.builtin_users.set(1)),
        Some(recorded) => {
            recorded.users.remove_unfinished();
            background.spawn_critical("recording the users", Arc::clone(recorded).record_changes());
            let following = reload::follow(
                Arc::clone(recorded),
                metrics.users_file.clone(),
                health.files("users_file"),
            )
            .map_err(signal_error)?;
            background.spawn_critical("following the users file", following);
        }
    }
    if let Some(mounted) = config.mounted_applications.clone() {
        let following = mounted
            .watch(
                Arc::clone(&app.registrations),
                metrics.clone(),
                health.files("applications_dir"),
            )
            .map_err(signal_error)?;
        background.spawn_critical("following the applications directory", following);
    }
    if let Some(tls) = &config.tls {
        let following = Arc::clone(tls)
            .follow(metrics.tls.clone(), health.files("tls_files").reloads())
            .map_err(signal_error)?;
        background.spawn_critical("following the TLS certificate", following);
    }
    Ok(())
}

/// The settings file, which is read at the start alone.
pub(crate) struct SettingsFile {
    path: PathBuf,
    /// Without the content, which may hold secrets.
    at_the_start: Result<Digest, String>,
}

impl SettingsFile {
    /// Returns `None` where no file is given.
    fn at_the_start() -> Option<Self> {
        let path = config_file::<Cli>()?;
        Some(Self {
            at_the_start: digest_of(&path),
            path,
        })
    }

    /// Notes that the file has another content than at the start.
    fn follow(self, condition: Condition) -> io::Result<impl Future<Output = ()>> {
        let mut polled = PolledFiles::start(self.at_the_start.clone())?;
        Ok(async move {
            loop {
                let path = self.path.clone();
                let Some(content) = polled.poll(move || digest_of(&path)).await else {
                    continue;
                };
                if *content == self.at_the_start {
                    condition.warn(None);
                } else {
                    condition.warn(Some(CHANGED.to_owned()));
                    warn!("{CHANGED}");
                }
            }
        })
    }
}

fn digest_of(path: &Path) -> Result<Digest, String> {
    match bounded_read::read(path, MAX_CONFIG_BYTES) {
        Ok(content) => Ok(sha256(&content.bytes)),
        Err(error) => Err(error.to_string()),
    }
}

fn metrics_registry(app: &App) -> Registry {
    let (config, metrics) = (&app.config, &app.metrics);
    let mut registry = metrics.registry();
    traces::register(&mut registry);
    if config.users.is_some() {
        metrics.users_file.register(&mut registry);
    }
    if config.tls.is_some() {
        metrics.tls.register(&mut registry);
    }
    if config.registry.is_some() {
        metrics.registration.register(&mut registry);
    }
    registry
}

/// Completes when the server has to stop accepting: deregisters first, then reports not ready for a while, so
/// that load balancers notice. A process at a terminal needs no such time, and a second signal ends the wait;
/// a failed background task takes the same way, so that no request is lost.
async fn shutdown(
    mut terminations: Terminations,
    ends: FirstFailure,
    registration: Option<Registration>,
    serving: Condition,
    drain: DrainTrigger,
    lame_duck: Duration,
) -> Result<(), ExitError> {
    serving.set_ready();
    let (reason, cause, gradually) = tokio::select! {
        signal = terminations.next() => match signal {
            Termination::Requested => (Ok(()), "SIGTERM".to_owned(), true),
            Termination::Interrupted => (Ok(()), "SIGINT".to_owned(), false),
        },
        failure = ends.first() => {
            error!(%failure, "stopping after an error, to be restarted");
            let cause = failure.to_string();
            (Err(failure), cause, true)
        }
    };
    audit::server_stopping(&cause);
    drain.begin();
    let gradual = async {
        if let Some(registration) = registration {
            registration.end().await;
        }
        serving.set_not_ready("stopping");
        if gradually {
            tokio::time::sleep(lame_duck).await;
        }
    };
    tokio::select! {
        () = gradual => {}
        _ = terminations.next() => {}
    }
    serving.set_not_ready("stopping");
    reason
}

async fn serve_public(
    app: Arc<App>,
    listener: TcpListener,
    format: LogFormat,
    health: &Health,
    drain: DrainTrigger,
    end: impl Future<Output = Result<(), ExitError>>,
) -> Result<(), ExitError> {
    let port_app = Arc::clone(&app);
    let port = HttpPort {
        tls: app.config.tls.clone(),
        keep_alive: true,
        is_busy_with_requests: true,
        drain_timeout: DRAIN_TIMEOUT,
        drain,
        unfinished: app.unfinished.clone(),
        reject: Arc::new(move |invalid, client| reject_unparsed(&port_app, invalid.into(), client)),
        ..HttpPort::new(
            "public port",
            http::router(Arc::clone(&app)),
            app.config.request_timeout,
        )
    };
    let address = listener::address(&listener)?;
    listener::announce(Port::Public, address, format);
    health.set_started();
    audit::server_started(address);
    let served = port.serve(listener, |peer| app.slot(peer), end).await;
    served.unwrap_or_else(|error| {
        Err(ExitError::Software(format!(
            "the listener cannot be served: {error}"
        )))
    })
}

#[cfg(test)]
mod tests;
