//! Metrics of the certificate that a program presents.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::file_watch::Transition;
use crate::metrics::register_renamed;

const REPLACED: &str = "replaced";
const REFUSED: &str = "refused";

/// Metrics of one certificate. Clones share their values.
#[derive(Debug, Clone, Default)]
pub struct CertificateMetrics {
    not_after: Gauge,
    reloads: Family<ReloadLabels, Counter>,
    usable: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    outcome: &'static str,
}

impl CertificateMetrics {
    /// Adds them to `registry`, only where there is a certificate: a gauge of 0 would report a
    /// broken one.
    pub fn register(&self, registry: &mut Registry) {
        register_renamed(
            registry,
            "tls_certificate_not_after_timestamp_seconds",
            "tls_certificate_not_after_seconds",
            "End of the presented TLS certificate, in seconds since 1970",
            self.not_after.clone(),
        );
        for outcome in [REPLACED, REFUSED] {
            // Present from the start: a rate needs a first value.
            drop(self.reloads.get_or_create(&ReloadLabels { outcome }));
        }
        registry.register(
            "tls_certificate_reloads",
            "Changes of the TLS certificate's files by outcome",
            self.reloads.clone(),
        );
        register_renamed(
            registry,
            "tls_last_reload_successful",
            "tls_files_usable",
            "1 if the TLS certificate's files could be used at the last poll",
            self.usable.clone(),
        );
    }

    /// Records a `transition` – `None` at the start – and the time when the certificate presented
    /// from then on ends, in seconds since the epoch.
    pub fn report(&self, not_after: i64, transition: Option<&Transition>) {
        self.not_after.set(not_after);
        let outcome = match transition {
            Some(Transition::Replaced) => Some(REPLACED),
            Some(Transition::Unusable(_)) => Some(REFUSED),
            Some(Transition::Recovered) | None => None,
        };
        self.usable.set(i64::from(outcome != Some(REFUSED)));
        if let Some(outcome) = outcome {
            self.reloads.get_or_create(&ReloadLabels { outcome }).inc();
        }
    }
}
