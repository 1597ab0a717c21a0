//! Builds the Pingora server: the proxy, the key refresh, the admin port, the shutdown.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

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
use crate::config::issuers::IssuerConfig;
use crate::config::live::CurrentRules;
use crate::config::{Config, RevocationSettings};
use crate::downstream::in_flight::InFlight;
use crate::downstream::limits;
use crate::exchange::Exchanges;
use crate::exchange::auth_proxy::AuthProxy;
use crate::issuers::cache::KeyCache;
use crate::issuers::current::CurrentKeys;
use crate::issuers::issuer_keys::{IssuerKeys, NamedKeys};
use crate::issuers::key_metrics::KeyMetrics;
use crate::issuers::readiness::{KeyReadiness, NOT_FETCHED};
use crate::issuers::refresh::Refresher;
use crate::issuers::revocation_refresh::RevocationRefresh;
use crate::issuers::source::{KeySource, SourceSettings};
use crate::server::connections::ClientConnections;
use crate::server::listener::{BoundService, ListenAddresses};
use crate::server::reload::{Reload, WatchedFiles};
use crate::server::reminder::Enforcing;
use crate::server::services::{refresh_keys, reload_certificate, serve_admin_port};
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
    let refreshers = refreshers(&config, &shared)?;
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
        refreshers: refreshers.clone(),
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
    let refresh = refresh_keys(refreshers);
    server.add_service(supervised("key refresh", refresh, &background));
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

fn keys_of(issuer: &IssuerConfig, config: &Config) -> NamedKeys {
    let required = revocations_of(issuer, config).and_then(|settings| settings.required);
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

fn refreshers(config: &Config, shared: &Shared) -> Result<Vec<Arc<Refresher>>, ExitError> {
    let keys = Arc::clone(&shared.keys);
    let condition = shared
        .health
        .condition_with_note("verification_key", NOT_FETCHED, move || key_ages(&keys));
    let names = config.issuers.iter().map(|issuer| issuer.name.clone());
    let readiness = KeyReadiness::of_each(condition, names);
    let issuers = config.issuers.iter().zip(shared.keys.iter()).zip(readiness);
    let refreshers = issuers.map(|((issuer, keys), ready)| {
        let revocations = revocations_of(issuer, config);
        let mut source = source_of(issuer)?;
        if revocations.is_some() {
            source.want_revocations();
        }
        shared.metrics.expect_key_refreshes(issuer.name.as_deref());
        let cache = issuer.key_cache.clone();
        let cache = cache.map(|settings| {
            let failing = Arc::clone(&keys.keys.cache_fails);
            KeyCache::new(settings, shared.metrics.clone(), failing)
        });
        let refresher = Refresher::new(
            source,
            config.schedule.clone(),
            keys,
            shared.metrics.clone(),
            ready.clone(),
        )
        .with_cache(cache, SystemTime::now());
        // Behind the keys, which verify a cached list.
        let list = revocations.map(|settings| {
            let ready = settings.required.map(|_| ready);
            revocation_refresh(settings, ready, issuer, keys, shared)
        });
        Ok(Arc::new(refresher.with_revocations(list)))
    });
    refreshers.collect()
}

/// Returns the settings of the revocation list of an issuer; only the auth server has one.
fn revocations_of(issuer: &IssuerConfig, config: &Config) -> Option<RevocationSettings> {
    let is_auth_server = matches!(issuer.source, SourceSettings::AuthServer(_));
    config.revocations.filter(|_| is_auth_server)
}

/// Opens the source of an issuer; one of several does not stop the start.
fn source_of(issuer: &IssuerConfig) -> Result<KeySource, ExitError> {
    let settings = issuer.source.clone();
    let source = match issuer.name {
        Some(_) => KeySource::of_several(settings),
        None => KeySource::new(settings)?,
    };
    if let Some(warning) = source.warning() {
        tracing::warn!("{warning}");
    }
    Ok(source)
}

fn revocation_refresh(
    settings: RevocationSettings,
    ready: Option<KeyReadiness>,
    issuer: &IssuerConfig,
    keys: &NamedKeys,
    shared: &Shared,
) -> RevocationRefresh {
    let (keys, metrics) = (Arc::clone(&keys.keys), shared.metrics.clone());
    let refresh = RevocationRefresh::new(keys, metrics, ready, settings.poll);
    // Beside the keys that verify it.
    let file = issuer.key_cache.as_ref().map(|cache| {
        let mut file = cache.file.clone().into_os_string();
        file.push(".revocations");
        file.into()
    });
    refresh.with_cache(file)
}

/// Written on `/readyz` without the path: any peer may read it.
const CACHE_FAILS: &str = "the key cache cannot be written and does not count at a restart";

/// Returns the age of each issuer's keys for `/readyz`, and that its cache fails.
fn key_ages(issuers: &IssuerKeys) -> Option<String> {
    let age = |issuer: &NamedKeys| {
        let cache_fails = issuer.keys.cache_fails.load(Ordering::Relaxed);
        let cache = cache_fails.then(|| CACHE_FAILS.to_owned());
        let notes: Vec<_> = key_age(&issuer.keys).into_iter().chain(cache).collect();
        let notes = (!notes.is_empty()).then(|| notes.join(", "));
        match &issuer.name {
            Some(name) => Some(format!(
                "{name}: {}",
                notes.as_deref().unwrap_or(NOT_FETCHED)
            )),
            None => notes,
        }
    };
    let ages: Vec<_> = issuers.iter().filter_map(age).collect();
    (!ages.is_empty()).then(|| ages.join("; "))
}

fn key_age(keys: &CurrentKeys) -> Option<String> {
    let state = keys.load();
    let state = state.as_ref()?;
    let seconds = state.age(Instant::now()).as_secs();
    let from_cache = if state.is_cached() {
        ", from the key cache"
    } else {
        ""
    };
    Some(format!("fetched {seconds} s ago{from_cache}"))
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
