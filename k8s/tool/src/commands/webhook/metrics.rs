//! Metrics of the admission webhook.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use runtime::metrics;
use runtime::metrics::{Label, counters_by};
use runtime::tls::CertificateMetrics;

use crate::admission::Outcome;

const PREFIX: &str = "postern_webhook";

metrics! {
    /// The metrics of the webhook.
    pub(super) struct WebhookMetrics {
        /// Reviewed objects by outcome (allowed, patched, rejected, malformed)
        reviews: Family<Label, Counter> = counters_by("outcome", Outcome::ALL.map(Outcome::name)),
    }
    beside {
        pub(super) tls: CertificateMetrics,
    }
}

impl WebhookMetrics {
    /// Returns a registry with every metric.
    pub(super) fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix(PREFIX);
        self.register(&mut registry);
        self.tls.register(&mut registry);
        registry
    }

    /// Counts a review.
    pub(super) fn count(&self, outcome: Outcome) {
        let label = [("outcome", outcome.name())];
        self.reviews.get_or_create(&label).inc();
    }
}
