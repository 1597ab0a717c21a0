//! Age, number and cost of the keys at the time of a scrape.

use std::sync::Arc;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue};
use prometheus_client::metrics::MetricType;

use super::current::CurrentKeys;
use super::installed_keys::InstalledKeys;
use super::issuer_keys::IssuerKeys;

/// Metrics that are computed at the scrape, for each issuer by its name if it has one. All but the
/// first are absent without a key, the clock without a response, and the last two, of the one list,
/// without it.
#[derive(Debug)]
pub(crate) struct KeyMetrics(pub(crate) Arc<IssuerKeys>);

impl Collector for KeyMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (now, encoder) = (Instant::now(), &mut encoder);
        self.encode_each(
            encoder,
            "keys_available",
            "1 with a verification key that is not too old, else 0",
            |issuer, keys| Some(u64::from(issuer.usable(keys, now).is_ok())),
        )?;
        self.encode_each(
            encoder,
            "key_age_seconds",
            "Seconds since the verification key was last fetched",
            |_, keys| Some(keys?.age(now).as_secs_f64()),
        )?;
        self.encode_each(
            encoder,
            "key_generation",
            "How often the verification key has changed since the start",
            |_, keys| Some(keys?.generation()),
        )?;
        self.encode_each(
            encoder,
            "clock_ahead_seconds",
            "Seconds by which the clock of the server of the keys is ahead of this machine's",
            |issuer, _| issuer.clock.ahead(),
        )?;
        self.encode_each(
            encoder,
            "token_cache_bytes",
            "Memory of the token cache",
            |_, keys| Some(keys?.verified_tokens().bytes()),
        )?;
        self.encode_each(
            encoder,
            "revocations",
            "Entries of the revocation list in force",
            |issuer, _| Some(issuer.list.load().as_ref()?.list().count()),
        )?;
        self.encode_each(
            encoder,
            "revocation_age_seconds",
            "Seconds since the revocation list was last fetched",
            |issuer, _| Some(issuer.list.load().as_ref()?.age(now).as_secs_f64()),
        )
    }
}

impl KeyMetrics {
    /// Encodes a metric of each issuer that has a value for it.
    fn encode_each<V: EncodeGaugeValue>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&CurrentKeys, Option<&InstalledKeys>) -> Option<V>,
    ) -> Result<(), std::fmt::Error> {
        let mut known = Vec::new();
        for issuer in self.0.fetched() {
            if let Some(value) = value(issuer, issuer.load().as_deref()) {
                known.push((&issuer.name, value));
            }
        }
        if known.is_empty() {
            return Ok(());
        }
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (issuer, value) in known {
            match issuer {
                Some(issuer) => {
                    metric
                        .encode_family(&[("issuer", issuer.as_str())])?
                        .encode_gauge(&value)?;
                }
                None => metric.encode_gauge(&value)?,
            }
        }
        Ok(())
    }
}
