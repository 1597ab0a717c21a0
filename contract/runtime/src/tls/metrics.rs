//! What becomes of the certificate that a program shows, as metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Seen;

const REPLACED: &str = "replaced";
const REFUSED: &str = "refused";

/// Clones share their values.
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
    /// Has `registry` show them. Only where there is a certificate: a gauge of 0 would say that it is
    /// broken.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "tls_certificate_not_after_seconds",
            "When the TLS certificate that is shown ends, in seconds since 1970",
            self.not_after.clone(),
        );
        for outcome in [REPLACED, REFUSED] {
            // There from the start: a rate needs a first value.
            drop(self.reloads.get_or_create(&ReloadLabels { outcome }));
        }
        registry.register(
            "tls_certificate_reloads",
            "Changes of the TLS certificate's files by outcome (replaced, refused)",
            self.reloads.clone(),
        );
        registry.register(
            "tls_files_usable",
            "Whether the TLS certificate's files could be used at the last look",
            self.usable.clone(),
        );
    }

    /// Takes note of what was `seen` – nothing yet at the start – and of when the certificate that is
    /// shown since then ends, in seconds since the epoch.
    pub fn seen(&self, not_after: i64, seen: Option<Seen>) {
        self.not_after.set(not_after);
        self.usable.set(i64::from(seen != Some(Seen::Refused)));
        let outcome = match seen {
            Some(Seen::Replaced) => REPLACED,
            Some(Seen::Refused) => REFUSED,
            Some(Seen::Recovered) | None => return,
        };
        self.reloads.get_or_create(&ReloadLabels { outcome }).inc();
    }
}
