//! Metrics of the admission webhook.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use runtime::tls::CertificateMetrics;

use crate::kubernetes::admission::Outcome;

const PREFIX: &str = "postern_webhook";
const MALFORMED: &str = "malformed";

/// The metrics. Clones share their values.
#[derive(Debug, Clone, Default)]
pub(super) struct WebhookMetrics {
    reviews: Family<ReviewLabels, Counter>,
    pub(super) tls: CertificateMetrics,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    outcome: &'static str,
}

impl WebhookMetrics {
    /// Returns a registry with every metric.
    pub(super) fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix(PREFIX);
        for outcome in [Outcome::Allowed, Outcome::Patched, Outcome::Rejected] {
            // Present from the start: a rate needs a first value.
            drop(self.counter(word(outcome)));
        }
        drop(self.counter(MALFORMED));
        registry.register(
            "reviews",
            "Reviewed objects by outcome (allowed, patched, rejected, malformed)",
            self.reviews.clone(),
        );
        self.tls.register(&mut registry);
        registry
    }

    /// Counts a review.
    pub(super) fn count(&self, outcome: Outcome) {
        self.counter(word(outcome)).inc();
    }

    /// Counts a request that is no review.
    pub(super) fn count_malformed(&self) {
        self.counter(MALFORMED).inc();
    }

    fn counter(&self, outcome: &'static str) -> Counter {
        self.reviews
            .get_or_create(&ReviewLabels { outcome })
            .clone()
    }
}

const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Allowed => "allowed",
        Outcome::Patched => "patched",
        Outcome::Rejected => "rejected",
    }
}
