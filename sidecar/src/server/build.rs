//! Builds the Pingora server and its services: the proxy, the issuers, the admin port, the shutdown.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server};
use postern_process::exit::ExitError;
use postern_process::supervisor::{FirstFailure, Supervisor, supervisor};
use postern_transport::net::connection_slots::ConnectionSlots;
use postern_transport::net::fd_limit;
use postern_transport::net::listener::{Port, address, bind};

use crate::admin::drain::Drain;
use crate::admin::explain::Explainer;
use crate::admin::probes;
use crate::admin::status::Status;
use crate::config::Config;
use crate::exchange::Exchanges;
use crate::exchange::app::{App, limits};
use crate::identity::client::Client;
use crate::issuers::task::{Changes, IssuerTask};
use crate::server::background::{supervised, until_stopped};
use crate::server::connections::ClientConnections;
use crate::server::listener;
use crate::server::reload::Reload;
use crate::server::reload::file_states::FileStates;
use crate::server::services::{follow_tls, run_issuers, serve_admin_port};
use crate::server::shutdown::GracefulStop;
use crate::upstream::exposure_check::ExposureProbe;
use crate::upstream::{IDLE_TIMEOUT, UpstreamNames};

/// Serves until a signal. `files` are the states of the files of `config` before they were read.
///
/// # Errors
/// At the start, an address that cannot be bound or resolved; later, the end of a background task.
pub(crate) fn serve(config: Config, files: FileStates) -> Result<(), ExitError> {
    // Ports are bound first: a port in use ends the start before any task runs.
    let public = bind(Port::Public, config.args.listening.listen)?;
    let admin = bind(Port::Admin, config.args.listening.admin_listen)?;
    let app = Arc::new(App::new(&config)?);
    let addresses = [
        (Port::Public, address(&public)?),
        (Port::Admin, address(&admin)?),
    ];
    let (background, ends) = supervisor();
    let (tasks, changes) = issuer_tasks(&config, &app)?;
    let stop = graceful_stop(addresses, &config, &app, ends);
    let failure = Arc::clone(&stop.failure);
    let started = Instant::now();
    let admin_routes = admin_routes(&config, &app, &stop, started);

    let mut server = Server::new_with_opt_and_conf(None, pingora_conf(&config));
    add_watches(&mut server, &config, &app, files, changes, &background);
    let probes = probes::routes(config.probes.clone())?;
    add_proxy(&mut server, &config, &app, public, &background);
    server.add_service(supervised("key refresh", run_issuers(tasks), &background));
    let admin = serve_admin_port(
        admin,
        app.health.clone(),
        Arc::clone(&app.registry),
        probes,
        admin_routes,
        background.clone(),
    );
    server.add_service(supervised("admin port", admin, &background));
    server.run(RunArgs {
        shutdown_signal: Box::new(stop),
    });
    tracing::info!(
        requests = app.metrics.requests.all(),
        uptime_s = started.elapsed().as_secs(),
        "stopped"
    );
    match failure.get() {
        Some(failure) => Err(failure.clone()),
        None => Ok(()),
    }
}

/// Adds what follows changes around the proxy: names, settings, certificates, the exposed port.
fn add_watches(
    server: &mut Server,
    config: &Config,
    app: &Arc<App>,
    files: FileStates,
    issuers: Changes,
    background: &Supervisor,
) {
    if let Some(names) = UpstreamNames::for_upstream(&app.upstream) {
        server.add_service(supervised("name lookup", names.run(), background));
    }
    let reload = Reload {
        start: config.args.clone(),
        files,
        app: Arc::clone(app),
        issuers,
        condition: app.health.files("configuration"),
    };
    server.add_service(supervised("reload", reload.run(), background));
    if let Some(tls) = &config.tls {
        let following = follow_tls(
            Arc::clone(tls),
            app.metrics.tls.clone(),
            app.health.files("tls_files"),
        );
        server.add_service(supervised("certificate reload", following, background));
    }
    if let Some(check) = exposure_probe(config, app) {
        server.add_service(supervised("exposure check", check.run(), background));
    }
}

/// Adds the service of the public port.
fn add_proxy(
    server: &mut Server,
    config: &Config,
    app: &Arc<App>,
    public: TcpListener,
    background: &Supervisor,
) {
    let descriptors = fd_limit::for_clients();
    let max = limits::max_of(
        "--max-connections",
        config.args.limits.max_connections,
        descriptors,
    );
    let evicted = app.metrics.connections_evicted.clone();
    let max_idle = limits::max_idle(descriptors);
    let clients = ClientConnections {
        requests: Arc::new(Exchanges::new(Arc::clone(app), max_idle, IDLE_TIMEOUT)),
        tls: config.tls.clone(),
        slots: ConnectionSlots::counting("public port", max, evicted),
        head_timeout: config.args.limits.request_header_timeout.duration(),
    };
    let serving = listener::serve(clients, public, app.drain.watcher());
    let mut proxy = until_stopped("proxy", serving, background);
    // `None`: the connections of clients get all configured threads.
    proxy.threads = None;
    server.add_service(proxy);
}

/// Returns the check of the service's port on the pod's address.
fn exposure_probe(config: &Config, app: &App) -> Option<ExposureProbe> {
    let (target, is_rejected) = config.exposure?;
    let unknown = "not known while the service is down";
    Some(ExposureProbe {
        target,
        upstream: Arc::clone(&app.upstream),
        metrics: app.metrics.clone(),
        ready: if is_rejected {
            Some(app.health.condition("exposure", unknown))
        } else {
            None
        },
    })
}

/// Returns what the admin port serves to loopback peers.
fn admin_routes(config: &Config, app: &App, stop: &GracefulStop, started: Instant) -> Router {
    let drain = Drain {
        drain: app.drain.clone(),
        serving: stop.serving.clone(),
        metrics: app.metrics.clone(),
        lame_duck: stop.lame_duck,
    };
    let explainer = Explainer {
        rules: Arc::clone(&app.rules),
        keys: Arc::clone(&app.keys),
        upstream: Arc::clone(&app.upstream),
        request_ids: app.request_ids,
        client: Client::new(
            Some(Ipv4Addr::LOCALHOST.into()),
            config.tls.is_some(),
            &app.trusted_proxies,
        ),
    };
    let status = Status {
        rules: Arc::clone(&app.rules),
        reported: Arc::clone(&app.request_logger.reported),
    };
    drain
        .routes()
        .merge(explainer.routes())
        .merge(status.routes(started, &app.health, &app.registry))
}

fn graceful_stop(
    addresses: [(Port, SocketAddr); 2],
    config: &Config,
    app: &App,
    ends: FirstFailure,
) -> GracefulStop {
    let serving = app.health.condition("serving", "starting");
    serving.set_ready();
    GracefulStop {
        addresses: addresses.into(),
        log_format: config.args.logs.log_format,
        lame_duck: config.args.stop.lame_duck.duration(),
        drain_timeout: config.args.stop.drain_timeout.duration(),
        drain: app.drain.clone(),
        serving,
        metrics: app.metrics.clone(),
        ends,
        failure: Arc::default(),
    }
}

/// Prepares the task of each issuer, and the senders of their changes.
fn issuer_tasks(config: &Config, app: &App) -> Result<(Vec<IssuerTask>, Changes), ExitError> {
    config
        .issuers
        .iter()
        .chain(&config.list_source)
        .zip(app.keys.fetched())
        .map(|(settings, keys)| {
            IssuerTask::new(
                settings.clone(),
                Arc::clone(keys),
                config.args.keys.refresh_cron.clone(),
                app.metrics.clone(),
            )
        })
        .collect()
}

fn pingora_conf(config: &Config) -> ServerConf {
    ServerConf {
        threads: config.args.limits.threads,
        // Work stealing needs several threads, and a runtime for one thread is cheaper.
        work_stealing: config.args.limits.threads > 1,
        // Pingora's own timers need a thread that wakes every 10 ms; tokio's do not.
        fast_timeout_to_tokio_threshold_seconds: Some(0),
        ..ServerConf::default()
    }
}
