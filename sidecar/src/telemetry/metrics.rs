//! Metrics of the sidecar: names, help texts, labels. No label has a path or a user.

mod requests;

use postern_process::metrics::{Label, LabelText, counters_by};
use postern_process::{metrics, named_enum};
use postern_transport::admin;
use postern_transport::tls::CertificateMetrics;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use self::requests::RequestMetrics;

pub(crate) const PREFIX: &str = "postern_sidecar";

const WRITTEN: &str = "written";
const FAILED: &str = "failed";
pub(crate) const APPLIED: &str = "applied";
/// Nothing that has changed is in force before the next start.
pub(crate) const WAITING: &str = "waiting";
pub(crate) const REJECTED: &str = "rejected";

type Labels = Vec<(&'static str, LabelText)>;

/// Returns the outcome of a fetch, and its issuer where there may be several.
fn refresh_labels(result: RefreshResult, issuer: Option<&str>) -> Labels {
    let mut labels = vec![("outcome", result.name().into())];
    if let Some(issuer) = issuer {
        labels.push(("issuer", issuer.into()));
    }
    labels
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
        /// Requests that are being served, or wait for a permit
        pub(crate) requests_in_flight: Gauge,
        /// Requests that a [[rule]] rejected, or would have with --enforce on, by its name
        rule_rejections: Family<Labels, Counter>,
        /// Open connections of clients
        pub(crate) connections: Gauge,
        /// Connections closed at once because all others had requests in flight
        pub(crate) connections_rejected: Counter,
        /// Connections without a request in flight that were closed for new ones
        pub(crate) connections_evicted: Counter,
        /// 1 once the service has sent bytes after the end of a response
        pub(crate) upstream_sent_surplus: Gauge,
        /// 1 once the service has taken the unread body of a request for a part of the next one
        pub(crate) upstream_left_body: Gauge,
        /// 1 once the service has ended a connection of HTTP/2 by a malformed frame or field
        pub(crate) upstream_broke_http2: Gauge,
        /// 1 if the service accepted a connection on the pod's address at the last probe (--pod-ip), else 0; -1 while it is not known
        pub(crate) upstream_exposed: Gauge = beginning_with(-1),
        /// Streams that were closed because their token had expired or was revoked
        pub(crate) streams_expired: Counter,
        /// Fetches of the verification key by outcome
        key_refreshes: Family<Labels, Counter>,
        /// Fetches of the revocation list by outcome: unchanged, replaced, older, failed
        revocation_refreshes: Family<Label, Counter>
            = counters_by("outcome", ListResult::ALL.map(ListResult::name)),
        /// Writes of the key cache's file (--key-cache) by outcome: written, failed
        key_cache_writes: Family<Label, Counter> = counters_by("outcome", [WRITTEN, FAILED]),
        /// Reloads of the configuration by outcome: applied, waiting (all that is new needs a restart), rejected
        config_reloads: Family<Label, Counter>
            = counters_by("outcome", [APPLIED, WAITING, REJECTED]),
        /// 1 if the configuration was usable at the last read, as at the start
        config_last_reload_successful: Gauge = beginning_with(1),
        /// 1 while settings that were read need a restart
        pub(crate) config_restart_needed: Gauge,
    }
    beside {
        pub(crate) requests: RequestMetrics = RequestMetrics::new(),
        /// Registered only for a port with TLS.
        pub(crate) tls: CertificateMetrics,
    }
}

impl Metrics {
    /// Registers all metrics except those of `keys`, which registers its own.
    pub(crate) fn new(token_cache: &TokenCacheCounters) -> (Self, Registry) {
        let metrics = Self::default();
        let mut registry = admin::registry(PREFIX, env!("CARGO_PKG_VERSION"));
        metrics.requests.register(&mut registry);
        metrics.register(&mut registry);
        token_cache.register(&mut registry);
        (metrics, registry)
    }

    /// Gives the series of each rule a first value, without which a rate misses the first rejection.
    pub(crate) fn expect_rules<'r>(&self, names: impl IntoIterator<Item = &'r str>) {
        for name in names {
            drop(self.rule_rejections.get_or_create(&rule_labels(name)));
        }
    }

    /// Counts a request that a rule rejected, or would have with `--enforce on`.
    pub(crate) fn rule_rejected(&self, name: &str) {
        self.rule_rejections.get_or_create(&rule_labels(name)).inc();
    }

    /// Gives each result of fetches a first value; `issuer` is the name where there may be several.
    pub(crate) fn expect_key_refreshes(&self, issuer: Option<&str>) {
        for result in RefreshResult::ALL {
            drop(
                self.key_refreshes
                    .get_or_create(&refresh_labels(result, issuer)),
            );
        }
    }

    /// Counts a fetch of keys; `issuer` is the name where there may be several.
    pub(crate) fn key_refreshed(&self, result: RefreshResult, issuer: Option<&str>) {
        self.key_refreshes
            .get_or_create(&refresh_labels(result, issuer))
            .inc();
    }

    pub(crate) fn revocations_refreshed(&self, result: ListResult) {
        self.revocation_refreshes
            .get_or_create(&[("outcome", result.name())])
            .inc();
    }

    pub(crate) fn config_reloaded(&self, outcome: &'static str) {
        self.config_last_reload_successful
            .set(i64::from(outcome != REJECTED));
        self.config_reloads
            .get_or_create(&[("outcome", outcome)])
            .inc();
    }

    pub(crate) fn key_cache_written(&self, succeeded: bool) {
        let labels = [("outcome", if succeeded { WRITTEN } else { FAILED })];
        self.key_cache_writes.get_or_create(&labels).inc();
    }
}

/// Returns a gauge that has a value before the first report.
fn beginning_with(value: i64) -> Gauge {
    let gauge = Gauge::default();
    gauge.set(value);
    gauge
}

fn rule_labels(name: &str) -> Labels {
    vec![("rule", name.into())]
}

/// One request or connection in its gauge. The guard removes it when it is dropped, because a broken
/// connection drops its request without a last phase.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    /// Counts one more until the guard is dropped.
    pub(crate) fn among(gauge: &Gauge) -> Self {
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
