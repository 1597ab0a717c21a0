//! `serve`: builds the parts and runs them until a signal.

use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;
use runtime::admin::health::{Condition, Health};
use runtime::logs::telemetry::LogFormat;
use runtime::net::connection_slots::ConnectionSlots;
use runtime::net::fd_limit;
use runtime::net::listener::{self, Port};
use runtime::net::shares::Shares;
use runtime::process::exit::ExitError;
use runtime::process::signals::{SighupStream, Termination, Terminations};
use runtime::process::supervisor::{FirstFailure, Supervisor, supervisor};
use runtime::traces;
use runtime::{admin, tls};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::audit;
use crate::cli::ServeArgs;
use crate::config::{Config, warnings};
use crate::downstream::{self, Draining, ServerParts};
use crate::http::Routes;
use crate::http::issuance::Issuance;
use crate::http::middleware::access_log::RequestLogger;
use crate::http::middleware::authenticate::Authentication;
use crate::http::middleware::in_flight::InFlight;
use crate::http::routes::dev::{DEV_PAGE_PATH, DEV_TOKEN_PATH, DevEndpoint};
use crate::http::routes::jwks::Jwks;
use crate::http::routes::login::Login;
use crate::http::routes::revocations::RevocationEndpoint;
use crate::http::routes::revoke::{self, RevokeEndpoint};
use crate::http::routes::static_files::StaticFiles;
use crate::http::routes::token::TokenEndpoint;
use crate::http::routes::verification_key::KeyEndpoint;
use crate::http::unfinished::Unfinished;
use crate::keys::sync::{KeySync, SyncedState};
use crate::loaded_users::LoadedUsers;
use crate::metrics::Metrics;
use crate::nacos::registration::Registration;
use crate::rate_limit::AddressLimit;
use crate::revocations::log::RevocationLog;
use crate::sessions::records::SessionRecords;
use crate::sessions::used_codes::UsedCodes;
use crate::sessions::{SessionParts, Sessions};
use crate::store::Store;
use crate::tokens::revocation_list::RevocationListSigner;
use crate::users::UserStore;
use crate::users::authenticate::Authenticator;
use crate::users::builtin::BuiltinUser;
use crate::users::reload::UsersReload;

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Start errors; later only a background task that has ended.
pub(crate) async fn serve(args: &ServeArgs) -> Result<(), ExitError> {
    let hang_ups = SighupStream::install().map_err(no_signals)?;
    let config = Config::from_args(args)?;
    let store = config.store.open_for_serving()?;
    let public = listener::bind(Port::Public, args.listening.listen)?;
    serve_with(args, config, (store, hang_ups), public).await
}

/// Serves on a listener that is bound already.
///
/// # Errors
/// Those of [`serve`].
pub(crate) async fn serve_on(
    public: TcpListener,
    args: &ServeArgs,
    config: Config,
) -> Result<(), ExitError> {
    let hang_ups = SighupStream::install().map_err(no_signals)?;
    let store = config.store.open_for_serving()?;
    serve_with(args, config, (store, hang_ups), public).await
}

async fn serve_with(
    args: &ServeArgs,
    config: Config,
    (store, hang_ups): (Arc<dyn Store>, SighupStream),
    public: TcpListener,
) -> Result<(), ExitError> {
    let started = Instant::now();
    // Before the addresses are printed: a reader of them may send a signal at once.
    let terminations = Terminations::install().map_err(no_signals)?;
    let (background, ends) = supervisor();
    let (clock, metrics) = (Arc::default(), Metrics::default());
    let shared = SyncedState {
        live_keys: Arc::default(),
        registrations: Arc::new(config.registrations()),
        revocations: Arc::new(RevocationLog::new(
            Arc::clone(&store),
            config.store.encryption(),
            Arc::clone(&clock),
            metrics.clone(),
            config.rotation.keep,
        )),
        clock,
        metrics,
    };
    info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = %args.listening.listen,
        admin_listen = %args.listening.admin_listen,
        store = %config.store,
        users = %args.accounts.users,
        "starting"
    );
    for warning in warnings(args, &config) {
        warn!("{warning}");
    }
    let health = Health::new();
    let admin = listener::bind(Port::Admin, args.listening.admin_listen)?;

    let mut key_sync = KeySync::new(
        (config.store.keys(&store), config.store.applications(&store)),
        config.signing_type,
        config.rotation,
        shared.clone(),
        &health,
    );
    // Probes first: a process waiting for a stalled store must not seem to hang.
    let stop = watch::Sender::new(());
    listener::announce(Port::Admin, &admin, args.logs.log_format)?;
    let metrics = metrics_registry(&config, &shared.metrics);
    let admin_task = admin::spawn(admin, &health, metrics, &stop, &background);
    key_sync.start().await?;
    follow_users(&config, &shared, &store, &background)?;
    follow_applications(&config, &shared, &background)?;
    follow_certificate(&config, &shared.metrics, &background)?;
    let hang_ups = log_sighups(hang_ups, reloaded_parts(&config));
    background.spawn_critical("listening for SIGHUP", hang_ups);
    background.spawn_critical(
        "the key synchronization",
        key_sync.run(config.store_poll_interval),
    );
    let draining = Draining::default();
    let end = shutdown(
        terminations,
        ends,
        registration(&public, &config, &shared, &background)?,
        health.condition("serving", "starting"),
        draining.clone(),
        args.stop.lame_duck.duration(),
    );
    let format = args.logs.log_format;
    let shared = (shared, store);
    let outcome = serve_public(public, format, config, shared, &health, draining, end).await;

    traces::flush().await;
    stop.send_replace(());
    let _ = tokio::time::timeout(Duration::from_secs(2), admin_task).await;
    info!(uptime_s = started.elapsed().as_secs(), "stopped");
    outcome
}

fn no_signals(error: std::io::Error) -> ExitError {
    ExitError::Software(format!("signals cannot be received: {error}"))
}

fn reloaded_parts(config: &Config) -> Vec<&'static str> {
    let users = config.users.as_ref().map(|_| "users file");
    let mounted = config.mounted_applications.as_ref();
    let mounted = mounted.map(|_| "applications directory");
    let certificate = config.certificate.as_ref().map(|_| "TLS certificate");
    [users, mounted, certificate]
        .into_iter()
        .flatten()
        .collect()
}

/// Logs the effect of each SIGHUP; the reloaded parts receive it themselves.
async fn log_sighups(mut hang_ups: SighupStream, reloaded_parts: Vec<&'static str>) {
    loop {
        hang_ups.next().await;
        if reloaded_parts.is_empty() {
            info!("SIGHUP received: nothing to reload");
        } else {
            info!(
                "SIGHUP received: reloading {}",
                reloaded_parts.join(" and ")
            );
        }
    }
}

fn registration(
    public: &TcpListener,
    config: &Config,
    shared: &SyncedState,
    background: &Supervisor,
) -> Result<Registration, ExitError> {
    let Some(registry) = &config.registry else {
        return Ok(Registration::none());
    };
    let (port, secure) = (
        listener::address(public)?.port(),
        config.certificate.is_some(),
    );
    let own = registry
        .advertised
        .instance(port, &config.context_path, secure);
    let (live_keys, metrics) = (Arc::clone(&shared.live_keys), shared.metrics.clone());
    Ok(Registration::start(
        registry.settings.clone(),
        own,
        live_keys,
        metrics,
        background,
    ))
}

fn follow_users(
    config: &Config,
    shared: &SyncedState,
    store: &Arc<dyn Store>,
    background: &Supervisor,
) -> Result<(), ExitError> {
    let metrics = &shared.metrics;
    let Some(users) = &config.users else {
        metrics.builtin_users();
        return Ok(());
    };
    users.remove_unfinished();
    let revocations = Arc::clone(&shared.revocations);
    let clock = Arc::clone(&shared.clock);
    let checked = (Arc::clone(&shared.registrations), Arc::clone(&clock));
    let reload = UsersReload::new(Arc::clone(users), metrics.clone(), revocations, checked);
    let loaded = LoadedUsers {
        store: Arc::clone(store),
        encryption: config.store.encryption(),
        clock,
        users: Arc::clone(users),
        revocations: Arc::clone(&shared.revocations),
    };
    let recording = loaded.follow(reload.changed());
    background.spawn_critical("recording the users", recording);
    let following = reload.watch().map_err(no_signals)?;
    background.spawn_critical("following the users file", following);
    Ok(())
}

fn follow_applications(
    config: &Config,
    shared: &SyncedState,
    background: &Supervisor,
) -> Result<(), ExitError> {
    let Some(mounted) = config.mounted_applications.clone() else {
        return Ok(());
    };
    let (registrations, metrics) = (Arc::clone(&shared.registrations), shared.metrics.clone());
    let following = mounted.watch(registrations, metrics).map_err(no_signals)?;
    background.spawn_critical("following the applications directory", following);
    Ok(())
}

fn follow_certificate(
    config: &Config,
    metrics: &Metrics,
    background: &Supervisor,
) -> Result<(), ExitError> {
    let Some(certificate) = &config.certificate else {
        return Ok(());
    };
    let following = tls::follow(Arc::clone(certificate), metrics.tls.clone());
    background.spawn_critical(
        "following the TLS certificate",
        following.map_err(no_signals)?,
    );
    Ok(())
}

fn metrics_registry(config: &Config, metrics: &Metrics) -> Registry {
    let mut registry = metrics.registry();
    traces::register(&mut registry);
    if config.users.is_some() {
        metrics.users_file.register(&mut registry);
    }
    if config.mounted_applications.is_some() {
        metrics.applications_dir.register(&mut registry);
    }
    if config.session_lifetime.is_some() {
        metrics.sessions.register(&mut registry);
    }
    if config.certificate.is_some() {
        metrics.tls.register(&mut registry);
    }
    if config.registry.is_some() {
        metrics.registration.register(&mut registry);
    }
    registry
}

/// Resolves when to stop accepting: deregisters first, then reports not ready for a while, so that
/// load balancers notice. A terminal needs no such time, and a second signal ends it; a failed
/// background task takes the same way, so that no request is lost.
async fn shutdown(
    mut terminations: Terminations,
    ends: FirstFailure,
    registration: Registration,
    serving: Condition,
    draining: Draining,
    lame_duck: Duration,
) -> Result<(), ExitError> {
    serving.set_ready();
    let (reason, gradually) = tokio::select! {
        signal = terminations.next() => (Ok(()), signal == Termination::Requested),
        failure = ends.first() => (Err(failure), true),
    };
    if let Err(failure) = &reason {
        error!(%failure, "stopping after an error, to be restarted");
    }
    audit::server_stopping(&cause(&reason, gradually));
    draining.begin();
    let gradual = async {
        registration.end().await;
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

/// Names the signal or the error behind the shutdown.
fn cause(reason: &Result<(), ExitError>, gradually: bool) -> String {
    match reason {
        Err(failure) => failure.to_string(),
        Ok(()) if gradually => "SIGTERM".to_owned(),
        Ok(()) => "SIGINT".to_owned(),
    }
}

async fn serve_public(
    listener: TcpListener,
    format: LogFormat,
    config: Config,
    (shared, store): (SyncedState, Arc<dyn Store>),
    health: &Health,
    draining: Draining,
    end: impl Future<Output = Result<(), ExitError>>,
) -> Result<(), ExitError> {
    let max_connections = max_connections(config.max_connections);
    let evictions = shared.metrics.connections_evicted();
    let slots = ConnectionSlots::counting("public port", max_connections, evictions);
    let tls = config.certificate.clone().map(tls::http1).transpose()?;
    let logger = logger(&config, &shared);
    let unfinished = Unfinished::for_this_process();
    let served = ServerParts {
        tls,
        logger: logger.clone(),
        request_timeout: config.request_timeout,
        draining,
        unfinished: unfinished.clone(),
        router: routes(config, shared, store, logger, unfinished, max_connections).into_router(),
    };
    listener::announce(Port::Public, &listener, format)?;
    let listener = tokio::net::TcpListener::from_std(listener)
        .map_err(|error| ExitError::Software(format!("the listener cannot be served: {error}")))?;
    health.set_started();
    audit::server_started(listener.local_addr().ok());
    downstream::serve(listener, served, &slots, end).await
}

/// Returns the configured number, or as many as there are descriptors.
fn max_connections(configured: u32) -> usize {
    let configured = configured as usize;
    let max = configured.min(fd_limit::for_clients());
    if max < configured {
        warn!(
            configured,
            max, "fewer connections than --max-connections: the limit of open files is low"
        );
    }
    max
}

fn logger(config: &Config, shared: &SyncedState) -> RequestLogger {
    RequestLogger {
        access_log: config.access_log,
        allowed_origins: config.allowed_origins.clone(),
        trusted_proxies: config.trusted_proxies.clone(),
        metrics: shared.metrics.clone(),
    }
}

fn routes(
    config: Config,
    shared: SyncedState,
    store: Arc<dyn Store>,
    logger: RequestLogger,
    unfinished: Unfinished,
    max_requests: usize,
) -> Routes {
    let SyncedState {
        live_keys,
        registrations,
        revocations,
        clock,
        metrics,
    } = shared;
    let used_codes = config.users.as_ref();
    let used_codes = used_codes.map(|_| UsedCodes::new(Arc::clone(&store), Arc::clone(&clock)));
    let users: Arc<dyn UserStore> = match config.users {
        Some(users) => users,
        None => Arc::new(BuiltinUser),
    };
    let sessions = config.session_lifetime.map(|lifetime| {
        Sessions::new(SessionParts {
            records: SessionRecords::new(store, config.store.encryption()),
            lifetime: lifetime.into(),
            token_lifetime: config.issuer.lifetime.into(),
            max_of_user: usize::try_from(config.sessions_per_user)
                .ok()
                .and_then(NonZeroUsize::new),
            users: Arc::clone(&users),
            log: Arc::clone(&revocations),
            clock: Arc::clone(&clock),
            metrics: metrics.clone(),
        })
    });
    let address_limit = AddressLimit::per_minute(config.login_rate_limit).map(Arc::new);
    let issuance = Issuance {
        address_limit: address_limit.clone(),
        trusted_proxies: config.trusted_proxies.clone(),
        issuer: config.issuer,
        live_keys: Arc::clone(&live_keys),
        clock: Arc::clone(&clock),
        metrics: metrics.clone(),
        body_timeout: config.request_timeout,
        unfinished: unfinished.clone(),
    };
    let dev_paths = config.any_claims.then_some([DEV_TOKEN_PATH, DEV_PAGE_PATH]);
    let dev_paths = dev_paths.into_iter().flatten();
    let dev_paths = dev_paths.map(|path| format!("{}{path}", config.context_path));
    Routes {
        logger,
        in_flight: InFlight {
            permits: Shares::of(max_requests),
            trusted_proxies: config.trusted_proxies.clone(),
        },
        authentication: Authentication::new(
            &config.context_path,
            config.interceptor,
            config.policy.clone(),
            (Arc::clone(&live_keys), Arc::clone(&revocations)),
            Arc::clone(&clock),
        )
        .exempt(config.metadata.iter().flat_map(|it| it.paths.clone()))
        .exempt(dev_paths),
        dev: config.any_claims.then(|| DevEndpoint {
            issuance: issuance.clone(),
        }),
        token: TokenEndpoint {
            registrations: Arc::clone(&registrations),
            users: Arc::clone(&users),
            sessions: sessions.clone(),
            issuance: issuance.clone(),
        },
        metadata: config.metadata,
        login: Login {
            users: Authenticator::new(users),
            used_codes,
            issuance,
            sessions: sessions.clone(),
        },
        jwks: Jwks {
            live_keys: Arc::clone(&live_keys),
        },
        revocations: RevocationEndpoint {
            live_keys: Arc::clone(&live_keys),
            log: Arc::clone(&revocations),
            clock: Arc::clone(&clock),
            signer: RevocationListSigner::default(),
        },
        revoke: RevokeEndpoint {
            live_keys: Arc::clone(&live_keys),
            policy: revoke::policy(config.policy, config.session_lifetime),
            log: revocations,
            clock,
            sessions,
            address_limit,
            trusted_proxies: config.trusted_proxies.clone(),
            body_timeout: config.request_timeout,
            unfinished,
        },
        verification_key: KeyEndpoint {
            jwks_link: config.jwks_link,
            revocations_link: config.revocations_link,
            live_keys,
            registrations,
            trusted_proxies: config.trusted_proxies,
            metrics,
        },
        static_files: StaticFiles::new(&config.context_path, config.static_root),
        context_path: config.context_path,
    }
}

#[cfg(test)]
mod tests;
