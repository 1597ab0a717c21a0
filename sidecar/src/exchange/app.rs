//! The parts of the program that requests use, built in one place and shared by all tasks.

mod in_flight;
pub(crate) mod limits;

use std::sync::Arc;
use std::time::{Duration, Instant};

use postern_process::exit::ExitError;
use postern_transport::admin::health::Health;
use postern_transport::drain::DrainTrigger;
use postern_transport::net::client_address::TrustedProxies;
use postern_transport::net::fd_limit;
use postern_transport::traces;
use prometheus_client::registry::Registry;

use self::in_flight::InFlight;
use crate::config::Config;
use crate::config::live::{CurrentRules, Enforcing};
use crate::issuers::current::CurrentKeys;
use crate::issuers::issuer_keys::IssuerKeys;
use crate::issuers::key_metrics::KeyMetrics;
use crate::issuers::{IssuerSettings, readiness};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::request_log::RequestLogger;
use crate::upstream::Upstream;

/// All parts. Requests read them without a lock; rules and keys are replaced as a whole.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) rules: Arc<CurrentRules>,
    pub(crate) keys: Arc<IssuerKeys>,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) request_logger: RequestLogger,
    pub(crate) trusted_proxies: TrustedProxies,
    /// `None`: forever.
    pub(crate) request_body_timeout: Option<Duration>,
    /// `None`: forever.
    pub(crate) downstream_write_timeout: Option<Duration>,
    pub(crate) in_flight: InFlight,
    pub(crate) close_streams_on_expiry: bool,
    pub(crate) metrics: Metrics,
    pub(crate) registry: Arc<Registry>,
    pub(crate) request_ids: bool,
    pub(crate) health: Health,
    pub(crate) drain: DrainTrigger,
}

impl App {
    /// Builds the parts; no key is fetched yet.
    ///
    /// # Errors
    /// [`ExitError::Config`] for an address of the service that does not resolve.
    pub(crate) fn new(config: &Config) -> Result<Self, ExitError> {
        let args = &config.args;
        // The one list may end tokens of every issuer.
        let list = Arc::default();
        let keys_of = |issuer| Arc::new(current_keys(issuer, config).with_list(&list));
        let keys = Arc::new(IssuerKeys::new(
            config.issuers.iter().map(keys_of).collect(),
            config.list_source.as_ref().map(keys_of),
        ));
        let rules = Arc::new(CurrentRules::new(config.rules.clone()));
        let (metrics, registry) = metrics(config, &keys, &rules);
        let health = Health::new();
        // Each report on readiness is computed from the keys in force at that time.
        let known = Arc::clone(&keys);
        health.computed(move || readiness::report(&known, Instant::now()));
        report_list(config, &keys, &health);
        let upstream = upstream(config)?;
        let service = Arc::clone(&upstream);
        health.computed(move || service.report());
        let max = limits::max_of(
            "--max-requests",
            args.limits.max_requests,
            fd_limit::for_clients(),
        );
        Ok(Self {
            rules,
            keys,
            upstream,
            request_logger: RequestLogger {
                metrics: metrics.clone(),
                reported: Arc::default(),
            },
            trusted_proxies: TrustedProxies::new(args.access.trusted_proxy.clone()),
            request_body_timeout: args.limits.request_body_timeout.limit(),
            downstream_write_timeout: args.limits.downstream_write_timeout.limit(),
            in_flight: InFlight::new(max),
            close_streams_on_expiry: args.limits.close_streams_on_expiry,
            metrics,
            registry: Arc::new(registry),
            request_ids: args.access.request_id,
            health,
            drain: DrainTrigger::default(),
        })
    }
}

/// Adds the row of the revocation list, if there is one, to the readiness report.
fn report_list(config: &Config, keys: &IssuerKeys, health: &Health) {
    let settings = config.issuers.iter().chain(&config.list_source);
    // The keys are in the order of their settings.
    for (IssuerSettings { source, .. }, keys) in settings.zip(keys.fetched()) {
        if source.wants_list() {
            let (source, keys) = (source.to_string(), Arc::clone(keys));
            health.computed(move || readiness::list_report(&keys, &source, Instant::now()));
            return;
        }
    }
}

fn current_keys(issuer: &IssuerSettings, config: &Config) -> CurrentKeys {
    CurrentKeys::new(
        config.token_cache.clone(),
        config.args.keys.max_key_age.limit(),
        issuer.max_revocation_age,
    )
    .with_name(issuer.name.clone())
}

fn metrics(
    config: &Config,
    keys: &Arc<IssuerKeys>,
    rules: &Arc<CurrentRules>,
) -> (Metrics, Registry) {
    let (metrics, mut registry) = Metrics::new(&config.token_cache.counters);
    registry.register_collector(Box::new(KeyMetrics(Arc::clone(keys))));
    metrics.expect_rules(config.rules.auth_policy.rule_names());
    if config.tls.is_some() {
        metrics.tls.register(&mut registry);
    }
    traces::register(&mut registry);
    registry.register_collector(Box::new(Enforcing(Arc::clone(rules))));
    (metrics, registry)
}

fn upstream(config: &Config) -> Result<Arc<Upstream>, ExitError> {
    match Upstream::new(config.upstream.clone()) {
        Ok(upstream) => Ok(Arc::new(upstream)),
        Err(error) => {
            let address = &config.upstream.address;
            Err(ExitError::Config(format!(
                "--upstream '{address}': {error}"
            )))
        }
    }
}
