//! `serve`: puts the parts together and runs them until a signal.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use contract::signing_type::SigningType;
use process::exit::Failure;
use process::health::Health;
use process::{admin, listener, signals};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::applications::registrations::Registrations;
use crate::cli::ServeArgs;
use crate::commands::store_failure;
use crate::config::Config;
use crate::http::Routes;
use crate::http::interception::Interception;
use crate::http::login::Login;
use crate::http::secret_key::SecretKey;
use crate::http::static_files::StaticFiles;
use crate::keys::current::CurrentKey;
use crate::keys::upkeep::Upkeep;
use crate::metrics::Metrics;
use crate::server;

/// What the routes share with the upkeep.
#[derive(Clone)]
struct Shared {
    current: Arc<CurrentKey>,
    registrations: Arc<Registrations>,
    metrics: Metrics,
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// What stops a start; nothing does once the server listens.
pub(crate) async fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let config = Config::from_args(args)?;
    let shared = Shared {
        current: Arc::default(),
        registrations: Arc::new(Registrations::new(config.signing_type == SigningType::Hmac)),
        metrics: Metrics::default(),
    };
    let health = Health::new();
    let store = config.store.open_for_serving().map_err(store_failure)?;
    let public = listener::bind(args.listen)?;
    let admin = listener::bind(args.admin_listen)?;

    let (
        Shared {
            current,
            registrations,
            metrics,
        },
        signing_type,
    ) = (shared.clone(), config.signing_type);
    let mut upkeep = Upkeep::new(
        store,
        signing_type,
        current,
        registrations,
        metrics,
        &health,
    );
    upkeep.start().await.map_err(store_failure)?;
    shared.metrics.builtin_users();
    warn!(
        "--users builtin: any name with any password logs in as the same user; not for production"
    );

    let stop = watch::Sender::new(());
    let admin_task = serve_admin(admin, &health, &shared.metrics, &stop)?;
    tokio::spawn(upkeep.run(config.store_reread));
    serve_public(public, config, shared, &health).await?;

    stop.send_replace(());
    let _ = tokio::time::timeout(Duration::from_secs(2), admin_task).await;
    info!("stopped");
    Ok(())
}

fn serve_admin(
    listener: TcpListener,
    health: &Health,
    metrics: &Metrics,
    stop: &watch::Sender<()>,
) -> Result<tokio::task::JoinHandle<()>, Failure> {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    listener::announce("admin listening on ", &listener)?;
    let mut stopped = stop.subscribe();
    let stopped = async move {
        let _ = stopped.changed().await;
    };
    let serving = admin::serve(
        listener,
        health.clone(),
        Arc::new(registry),
        Router::new(),
        stopped,
    );
    Ok(tokio::spawn(async move {
        if let Err(error) = serving.await {
            error!(%error, "the admin port is not served");
        }
    }))
}

async fn serve_public(
    listener: TcpListener,
    config: Config,
    shared: Shared,
    health: &Health,
) -> Result<(), Failure> {
    let request_timeout = config.request_timeout;
    let router = routes(config, shared).into_router();
    listener::announce("listening on ", &listener)?;
    let listener = tokio::net::TcpListener::from_std(listener)
        .map_err(|error| Failure::Software(format!("the listener cannot be served: {error}")))?;
    health.set_started();
    let end = async {
        signals::terminated().await;
    };
    server::serve(listener, router, request_timeout, end).await;
    Ok(())
}

fn routes(config: Config, shared: Shared) -> Routes {
    let Shared {
        current,
        registrations,
        metrics,
    } = shared;
    Routes {
        interception: Interception::new(
            &config.context_path,
            config.interceptor,
            config.policy,
            Arc::clone(&current),
        ),
        login: Login {
            issuer: config.issuer,
            current: Arc::clone(&current),
            metrics: metrics.clone(),
            body_timeout: config.request_timeout,
            oauth_response: config.oauth_response,
        },
        secret_key: SecretKey {
            current,
            registrations,
            metrics,
        },
        static_files: StaticFiles::new(&config.context_path, config.static_root),
        context_path: config.context_path,
    }
}
