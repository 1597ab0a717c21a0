//! Metrics of the certificate that a program presents.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use postern_process::metrics::{Label, counters_by};

const REPLACED: &str = "replaced";
const REJECTED: &str = "rejected";

postern_process::metrics! {
    /// Metrics of one certificate, registered only where there is one: a gauge of 0 would report a
    /// broken one.
    pub struct CertificateMetrics {
        /// End of the presented TLS certificate, in seconds since 1970
        tls_certificate_not_after_timestamp_seconds: Gauge,
        /// Changes of the TLS certificate's files by outcome
        tls_certificate_reloads: Family<Label, Counter>
            = counters_by("outcome", [REPLACED, REJECTED]),
        /// 1 if the TLS certificate's files could be used at the last poll
        tls_last_reload_successful: Gauge,
    }
}

impl CertificateMetrics {
    /// Records that the files were used, true for another content, or `None` at the start, and the
    /// time when the certificate presented from then on ends, in seconds since the epoch.
    pub fn report(&self, not_after: i64, replaced: Option<&Result<bool, String>>) {
        self.tls_certificate_not_after_timestamp_seconds
            .set(not_after);
        let outcome = match replaced {
            Some(Ok(true)) => Some(REPLACED),
            Some(Err(_)) => Some(REJECTED),
            Some(Ok(false)) | None => None,
        };
        self.tls_last_reload_successful
            .set(i64::from(outcome != Some(REJECTED)));
        if let Some(outcome) = outcome {
            self.tls_certificate_reloads
                .get_or_create(&[("outcome", outcome)])
                .inc();
        }
    }
}
