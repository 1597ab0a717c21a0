//! Builds the Pingora server: the proxy, the key refresh, the admin port, the shutdown.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Instant;

use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server};
use prometheus_client::registry::Registry;
use runtime::admin::health::Health;
use runtime::logs::telemetry::LogFormat;
use runtime::net::connection_slots::ConnectionSlots;
use runtime::net::fd_limit;
use runtime::net::listener::{self, Port};
use runtime::process::exit::ExitError;
use runtime::process::supervisor::{FirstFailure, Supervisor, supervisor};
use runtime::traces;
use tokio::sync::watch;

use crate::admin::drain::Drain;
use crate::admin::explain::Explainer;
use crate::admin::probes;
use crate::admin::status::{self, Status};
use crate::admin::suggest::Suggestions;
use crate::background::{Draining, supervised};
use crate::cli::ServeArgs;
use crate::config::Config;
use crate::config::live::CurrentRules;
use crate::downstream::in_flight::InFlight;
use crate::downstream::limits;
use crate::exchange::Exchanges;
use crate::exchange::auth_proxy::AuthProxy;
use crate::issuers::IssuerSettings;
use crate::issuers::current::CurrentKeys;
use crate::issuers::issuer_keys::{IssuerKeys, NamedKeys};
use crate::issuers::key_metrics::KeyMetrics;
use crate::issuers::readiness;
use crate::issuers::task::{Changes, IssuerTask};
use crate::server::connections::ClientConnections;
use crate::server::listener::{BoundService, ListenAddresses};
use crate::server::reload::{Reload, WatchedFiles};
use crate::server::reminder::Enforcing;
use crate::server::services::{reload_certificate, run_issuers, serve_admin_port};
use crate::server::shutdown::{ExitReason, GracefulStop};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::request_log::RequestLogger;
use crate::upstream::exposure_check::ExposureProbe;
use crate::upstream::{IDLE_TIMEOUT, Upstream, UpstreamNames};
use runtime::tls::clients::ClientTls;

/// The state that the parts of the program share.
struct Shared {
    rules: Arc<CurrentRules>,
    keys: Arc<IssuerKeys>,
    metrics: Metrics,
    request_logger: RequestLogger,
    health: Health,
    draining: Draining,
    /// Turns true when the proxy has to stop accepting.
    connections: watch::Sender<bool>,
}

/// Serves until a signal. `config` comes from `args`; `files` holds the state of their files before
/// that.
///
/// # Errors
/// At the start an address that cannot be bound or resolved; later the end of a background task.
pub(crate) fn serve(
    config: Config,
    args: &ServeArgs,
    files: WatchedFiles,
) -> Result<(), ExitError> {
    let public = listener::bind(Port::Public, config.listen)?;
    let admin = listener::bind(Port::Admin, config.admin_listen)?;
    let (shared, registry) = shared(&config);
    let announcement = announcement(&public, &admin, args.logs.log_format)
        .map_err(|error| ExitError::Software(format!("a listener cannot be shared: {error}")))?;
    let (background, ends) = supervisor();
    let stop = graceful_stop(announcement, &config, &shared, ends);
    let exit_reason = stop.exit_reason.clone();
    let drain = Drain {
        draining: stop.draining.clone(),
        serving: stop.serving.clone(),
        metrics: stop.metrics.clone(),
        lame_duck: stop.times.lame_duck,
    };
    let (tasks, changes) = issuer_tasks(&config, &shared)?;
    let started = Instant::now();
    let explainer = explainer(&config, &shared);
    let suggestions = Suggestions {
        rules: Arc::clone(&shared.rules),
        reported: Arc::clone(&shared.request_logger.reported),
    };

    let mut server = Server::new_with_opt_and_conf(None, pingora_conf(&config));
    let upstream = upstream(&config)?;
    if let Some(names) = UpstreamNames::of(&upstream) {
        server.add_service(supervised("name lookup", names.run(), &background));
    }
    let tls = config.tls.as_ref().map(ClientTls::new).transpose()?;
    let tls = tls.map(Arc::new);
    let reload = Reload {
        start: args.clone(),
        watched: files,
        rules: Arc::clone(&shared.rules),
        upstream: Arc::clone(&upstream),
        client_tls: tls.clone(),
        issuers: changes,
        metrics: shared.metrics.clone(),
    };
    server.add_service(supervised("reload", reload.run(), &background));
    if let Some(settings) = &config.tls {
        let certificate = Arc::clone(&settings.certificate);
        let reload = reload_certificate(certificate, shared.metrics.tls.clone());
        server.add_service(supervised("certificate reload", reload, &background));
    }
    if let Some((target, rejected)) = config.bypass {
        let condition = || shared.health.condition("bypass", "not probed yet");
        let check = ExposureProbe {
            target,
            metrics: shared.metrics.clone(),
            ready: rejected.then(condition),
        };
        server.add_service(supervised("bypass check", check.run(), &background));
    }
    let probes = probes::routes(config.probes.clone())?;
    let clients = client_connections(config, tls, upstream, &shared);
    server.add_service(public_service(clients, public, &shared, &background)?);
    server.add_service(supervised("key refresh", run_issuers(tasks), &background));
    let registry = Arc::new(registry);
    let status = Status {
        health: shared.health.clone(),
        metrics: Arc::clone(&registry),
        explainer: explainer.clone(),
        suggestions: suggestions.clone(),
    };
    let commands = drain
        .routes()
        .merge(explainer.routes())
        .merge(suggestions.routes())
        .merge(status::routes(Arc::new(status)));
    let admin = serve_admin_port(admin, shared.health.clone(), registry, probes, commands);
    server.add_service(supervised("admin port", admin, &background));
    let metrics = shared.metrics.clone();
    // Only the shutdown holds the sender from here on: it waits for the receivers to go.
    drop(shared);
    server.run(RunArgs {
        shutdown_signal: Box::new(stop),
    });
    tracing::info!(
        requests = metrics.requests(),
        uptime_s = started.elapsed().as_secs(),
        "stopped"
    );
    exit_reason.outcome()
}

fn shared(config: &Config) -> (Shared, Registry) {
    let keys = Arc::new(IssuerKeys::new(
        config
            .issuers
            .iter()
            .map(|issuer| keys_of(issuer, config))
            .collect(),
    ));
    let (metrics, mut registry) = Metrics::new(&config.token_cache.counters);
    registry.register_collector(Box::new(KeyMetrics(Arc::clone(&keys))));
    metrics.expect_rules(config.rules.auth_policy.rule_names());
    if config.tls.is_some() {
        metrics.tls.register(&mut registry);
    }
    traces::register(&mut registry);
    let request_logger = RequestLogger {
        metrics: metrics.clone(),
        access_log: config.access_log,
        logged_user: config.logged_user,
        trusted_proxies: Arc::new(config.trusted_proxies.clone()),
        reported: Arc::default(),
    };
    let rules = Arc::new(CurrentRules::new(config.rules.clone()));
    registry.register_collector(Box::new(Enforcing(Arc::clone(&rules))));
    let shared = Shared {
        rules,
        keys,
        metrics,
        request_logger,
        health: Health::new(),
        draining: Draining::default(),
        connections: watch::Sender::new(false),
    };
    (shared, registry)
}

fn keys_of(issuer: &IssuerSettings, config: &Config) -> NamedKeys {
    let required = issuer.revocations.and_then(|list| list.required);
    let keys = CurrentKeys::new(config.token_cache.clone(), config.max_key_age, required);
    NamedKeys {
        name: issuer.name.clone(),
        keys: Arc::new(keys),
    }
}

fn explainer(config: &Config, shared: &Shared) -> Explainer {
    Explainer {
        rules: Arc::clone(&shared.rules),
        keys: Arc::clone(&shared.keys),
        request_ids: config.request_ids,
        to_http_2: config.upstream.address.speaks_http_2(),
    }
}

fn announcement(
    public: &TcpListener,
    admin: &TcpListener,
    format: LogFormat,
) -> std::io::Result<ListenAddresses> {
    let listeners = vec![
        (Port::Public, public.try_clone()?),
        (Port::Admin, admin.try_clone()?),
    ];
    Ok(ListenAddresses::new(listeners, format))
}

fn graceful_stop(
    announcement: ListenAddresses,
    config: &Config,
    shared: &Shared,
    ends: FirstFailure,
) -> GracefulStop {
    let serving = shared.health.condition("serving", "starting");
    serving.set_ready();
    GracefulStop {
        announcement,
        times: config.stop,
        draining: shared.draining.clone(),
        serving,
        connections: shared.connections.clone(),
        metrics: shared.metrics.clone(),
        ends,
        exit_reason: ExitReason::default(),
    }
}

/// Prepares the task of each issuer, and the senders of their changes.
fn issuer_tasks(config: &Config, shared: &Shared) -> Result<(Vec<IssuerTask>, Changes), ExitError> {
    let keys = Arc::clone(&shared.keys);
    let readiness = move || readiness::report(&keys, Instant::now());
    shared.health.computed(readiness);
    let issuers = config.issuers.iter().zip(shared.keys.iter());
    let task = |(settings, keys): (&IssuerSettings, &NamedKeys)| {
        let (schedule, metrics) = (config.schedule.clone(), shared.metrics.clone());
        IssuerTask::new(settings.clone(), keys, schedule, metrics)
    };
    issuers.map(task).collect()
}

fn client_connections(
    config: Config,
    tls: Option<Arc<ClientTls>>,
    upstream: Arc<Upstream>,
    shared: &Shared,
) -> ClientConnections {
    let descriptors = fd_limit::for_clients();
    let max = |flag, configured| limits::max_of(flag, configured, descriptors);
    let connections = max("--max-connections", config.max_connections);
    let evictions = shared.metrics.connections_evicted();
    let slots = ConnectionSlots::counting("public port", connections, evictions);
    let in_flight = InFlight::new(max("--max-requests", config.max_requests));
    let head_timeout = config.request_header_timeout;
    let proxy = auth_proxy(config, upstream, in_flight, shared);
    let requests = Exchanges::new(proxy, limits::max_idle(descriptors), IDLE_TIMEOUT);
    ClientConnections::new(requests, tls, slots, head_timeout)
}

fn upstream(config: &Config) -> Result<Arc<Upstream>, ExitError> {
    let settings = config.upstream.clone();
    let address = settings.address.to_string();
    Upstream::new(settings)
        .map(Arc::new)
        .map_err(|error| ExitError::Config(format!("--upstream '{address}': {error}")))
}

fn auth_proxy(
    config: Config,
    upstream: Arc<Upstream>,
    in_flight: InFlight,
    shared: &Shared,
) -> AuthProxy {
    AuthProxy {
        rules: Arc::clone(&shared.rules),
        keys: Arc::clone(&shared.keys),
        upstream,
        request_logger: shared.request_logger.clone(),
        request_ids: config.request_ids,
        request_body_timeout: config.request_body_timeout,
        downstream_write_timeout: config.downstream_write_timeout,
        in_flight,
        close_streams_on_expiry: config.close_streams_on_expiry,
        metrics: shared.metrics.clone(),
        draining: shared.draining.clone(),
    }
}

fn pingora_conf(config: &Config) -> ServerConf {
    ServerConf {
        threads: config.threads,
        // Work stealing needs several threads, and a runtime for one thread is cheaper.
        work_stealing: config.threads > 1,
        // Pingora's own timers need a thread that wakes every 10 ms; tokio's do not.
        fast_timeout_to_tokio_threshold_seconds: Some(0),
        ..ServerConf::default()
    }
}

fn public_service(
    clients: ClientConnections,
    listener: TcpListener,
    shared: &Shared,
    background: &Supervisor,
) -> Result<BoundService<ClientConnections>, ExitError> {
    let stop = shared.connections.subscribe();
    BoundService::new("proxy", clients, listener, stop, background.clone())
        .map_err(|error| ExitError::Software(format!("the listener has no address: {error}")))
}
