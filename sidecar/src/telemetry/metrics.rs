//! Metrics of the sidecar: names, help texts, labels. No label has a path or a user.

mod requests;

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use runtime::metrics::{Label, counters_by};
use runtime::tls::CertificateMetrics;
use runtime::{metrics, named_enum};

use self::requests::RequestMetrics;
use crate::telemetry::outcome::Completion;

const PREFIX: &str = "postern_sidecar";

const WRITTEN: &str = "written";
const FAILED: &str = "failed";
const APPLIED: &str = "applied";
const REJECTED: &str = "refused";

/// The outcome of a fetch, and its issuer where there may be several.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RefreshLabels {
    outcome: &'static str,
    issuer: Option<String>,
}

impl RefreshLabels {
    fn new(result: RefreshResult, issuer: Option<&str>) -> Self {
        Self {
            outcome: result.name(),
            issuer: issuer.map(ToOwned::to_owned),
        }
    }
}

impl EncodeLabelSet for RefreshLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        ("outcome", self.outcome).encode(encoder.encode_label())?;
        match &self.issuer {
            Some(issuer) => ("issuer", issuer.as_str()).encode(encoder.encode_label()),
            None => Ok(()),
        }
    }
}

named_enum! {
    /// Result of a refresh of the verification key.
    pub(crate) enum RefreshResult {
        Unchanged = "unchanged",
        Replaced = "replaced",
        Failed = FAILED,
    }
}

named_enum! {
    /// Result of a fetch of the revocation list.
    pub(crate) enum ListResult {
        Unchanged = "unchanged",
        Replaced = "replaced",
        /// The list in force is newer.
        Older = "older",
        Failed = FAILED,
    }
}

metrics! {
    /// Lookups of the token cache, continued from one key set to the next.
    pub(crate) struct TokenCacheCounters {
        /// Tokens that were verified before with the present keys
        pub(crate) token_cache_hits: Counter,
        /// Tokens that were not in the cache
        pub(crate) token_cache_misses: Counter,
        /// Verified tokens that were removed for others
        pub(crate) token_cache_evictions: Counter,
    }
}

metrics! {
    /// Metrics that the program updates.
    pub(crate) struct Metrics {
        /// Requests that are being served
        requests_in_flight: Gauge,
        /// Requests that a [[rule]] rejected, or would have with --enforce on, by its name
        rule_refusals: Family<[(&'static str, String); 1], Counter>,
        /// Open connections of clients
        connections: Gauge,
        /// Connections closed at once because all others had requests in flight
        connections_rejected: Counter,
        /// Connections without a request in flight that were closed for new ones
        connections_evicted: Counter,
        /// 1 if the service accepted a connection on the pod's address at the last probe (--pod-ip)
        upstream_exposed: Gauge,
        /// Streams that were closed because their token had expired or was revoked
        streams_expired: Counter,
        /// Fetches of the verification key by outcome
        key_refreshes: Family<RefreshLabels, Counter>,
        /// Fetches of the revocation list by outcome: unchanged, replaced, older, failed
        revocation_refreshes: Family<Label, Counter>
            = counters_by("outcome", ListResult::ALL.map(ListResult::name)),
        /// Writes of the key cache's file (--key-cache) by outcome: written, failed
        key_cache_writes: Family<Label, Counter> = counters_by("outcome", [WRITTEN, FAILED]),
        /// Reloads of the configuration by outcome
        config_reloads: Family<Label, Counter> = counters_by("outcome", [APPLIED, REJECTED]),
        /// 1 if the configuration was usable at the last read
        config_last_reload_successful: Gauge = usable(),
        /// 1 while settings that were read need a restart
        config_restart_needed: Gauge,
    }
    beside {
        requests: RequestMetrics = RequestMetrics::new(),
        /// Registered only for a port with TLS.
        pub(crate) tls: CertificateMetrics,
    }
}

impl Metrics {
    /// Registers all metrics except those of `keys`, which registers its own.
    pub(crate) fn new(token_cache: &TokenCacheCounters) -> (Self, Registry) {
        let metrics = Self::default();
        let mut registry = metrics::program(PREFIX, env!("CARGO_PKG_VERSION"));
        metrics.requests.register(&mut registry);
        metrics.register(&mut registry);
        token_cache.register(&mut registry);
        (metrics, registry)
    }

    /// Counts a finished request.
    pub(crate) fn request_ended(&self, completion: &Completion) {
        self.requests.ended(completion);
    }

    /// Gives the rules their first value: a rate needs one.
    pub(crate) fn expect_rules<'r>(&self, names: impl IntoIterator<Item = &'r str>) {
        for name in names {
            drop(self.rule_refusals.get_or_create(&rule_labels(name)));
        }
    }

    /// Counts a request that a rule rejected, or would have with `--enforce on`.
    pub(crate) fn rule_rejected(&self, name: &str) {
        self.rule_refusals.get_or_create(&rule_labels(name)).inc();
    }

    /// Returns the number of requests since the start.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.all()
    }

    /// Records the time from the head of a request to its decision.
    pub(crate) fn decided(&self, after: Duration) {
        self.requests.auth_duration_seconds.observe(after);
    }

    /// Records the time from the decision to the head of the service's response.
    pub(crate) fn service_responded(&self, after: Duration) {
        self.requests.upstream_duration_seconds.observe(after);
    }

    /// Counts a request in flight until the guard is dropped.
    pub(crate) fn request_began(&self) -> Counted {
        Counted::among(&self.requests_in_flight)
    }

    /// Counts an open connection until the guard is dropped.
    pub(crate) fn connection_opened(&self) -> Counted {
        Counted::among(&self.connections)
    }

    pub(crate) fn connection_rejected(&self) {
        self.connections_rejected.inc();
    }

    /// Returns the counter of connections that were closed for new ones.
    pub(crate) fn connections_evicted(&self) -> Counter {
        self.connections_evicted.clone()
    }

    pub(crate) fn upstream_exposed(&self, exposed: bool) {
        self.upstream_exposed.set(i64::from(exposed));
    }

    pub(crate) fn stream_ended(&self) {
        self.streams_expired.inc();
    }

    pub(crate) fn in_flight(&self) -> i64 {
        self.requests_in_flight.get()
    }

    pub(crate) fn open_connections(&self) -> i64 {
        self.connections.get()
    }

    /// Gives each result of fetches a first value; `issuer` is the name where there may be several.
    pub(crate) fn expect_key_refreshes(&self, issuer: Option<&str>) {
        for result in RefreshResult::ALL {
            let labels = RefreshLabels::new(result, issuer);
            drop(self.key_refreshes.get_or_create(&labels));
        }
    }

    /// Counts a fetch of keys; `issuer` is the name where there may be several.
    pub(crate) fn key_refreshed(&self, result: RefreshResult, issuer: Option<&str>) {
        let labels = RefreshLabels::new(result, issuer);
        self.key_refreshes.get_or_create(&labels).inc();
    }

    pub(crate) fn revocations_refreshed(&self, result: ListResult) {
        self.revocation_refreshes
            .get_or_create(&[("outcome", result.name())])
            .inc();
    }

    pub(crate) fn restart_needed(&self, needed: bool) {
        self.config_restart_needed.set(i64::from(needed));
    }

    pub(crate) fn config_reloaded(&self, applied: bool) {
        let labels = [("outcome", if applied { APPLIED } else { REJECTED })];
        self.config_last_reload_successful.set(i64::from(applied));
        self.config_reloads.get_or_create(&labels).inc();
    }

    pub(crate) fn key_cache_written(&self, succeeded: bool) {
        let labels = [("outcome", if succeeded { WRITTEN } else { FAILED })];
        self.key_cache_writes.get_or_create(&labels).inc();
    }
}

/// The start counts as a usable configuration.
fn usable() -> Gauge {
    let usable = Gauge::default();
    usable.set(1);
    usable
}

fn rule_labels(name: &str) -> [(&'static str, String); 1] {
    [("rule", name.to_owned())]
}

/// One request or connection in its gauge, removed on drop: a broken connection drops its request
/// without a last phase.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    fn among(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests;
