//! Age, number and cost of the keys at the time of a scrape.

use std::sync::Arc;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, MetricEncoder};
use prometheus_client::metrics::MetricType;

use super::current::{CurrentKeys, InstalledKeys};
use super::issuer_keys::IssuerKeys;

/// Metrics that are computed at the scrape, for each issuer by its name if it has one. All but the
/// first are absent without a key.
#[derive(Debug)]
pub(crate) struct KeyMetrics(pub(crate) Arc<IssuerKeys>);

impl Collector for KeyMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let now = Instant::now();
        let mut metric = encoder.encode_descriptor(
            "keys_available",
            "1 with a verification key that is not too old, else 0",
            None,
            MetricType::Gauge,
        )?;
        for named in self.0.iter() {
            let state = named.load();
            let is_usable = named.usable(state.as_deref(), now).is_ok();
            write(&mut metric, named, &u64::from(is_usable))?;
        }
        self.encode_each(
            &mut encoder,
            "key_age_seconds",
            "Seconds since the verification key was last fetched",
            |keys| keys.age(now).as_secs_f64(),
        )?;
        self.encode_each(
            &mut encoder,
            "key_generation",
            "How often the verification key has changed since the start",
            |keys| keys.generation(),
        )?;
        self.encode_each(
            &mut encoder,
            "token_cache_bytes",
            "Memory of the token cache",
            |keys| keys.verified_tokens().bytes(),
        )?;
        self.encode_revocations(&mut encoder, now)
    }
}

impl KeyMetrics {
    /// Encodes the list of the auth server, the only issuer that has one.
    fn encode_revocations(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        now: Instant,
    ) -> Result<(), std::fmt::Error> {
        let list = |named: &Arc<CurrentKeys>| {
            let state = named.load();
            let revocations = state.as_deref()?.revocations()?;
            let entries = revocations.list().count();
            Some((entries, revocations.age(now).as_secs_f64()))
        };
        let Some((entries, age)) = self.0.iter().find_map(list) else {
            return Ok(());
        };
        encoder
            .encode_descriptor(
                "revocations",
                "Entries of the revocation list in force",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&entries)?;
        encoder
            .encode_descriptor(
                "revocation_age_seconds",
                "Seconds since the revocation list was last fetched",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&age)
    }

    /// Encodes a metric of each issuer that has keys.
    fn encode_each<V: EncodeGaugeValue>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&InstalledKeys) -> V,
    ) -> Result<(), std::fmt::Error> {
        if self.0.iter().all(|named| named.load().is_none()) {
            return Ok(());
        }
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for named in self.0.iter() {
            if let Some(keys) = named.load().as_deref() {
                write(&mut metric, named, &value(keys))?;
            }
        }
        Ok(())
    }
}

/// Writes one value, with the issuer's name if it has one.
fn write(
    metric: &mut MetricEncoder<'_>,
    issuer: &CurrentKeys,
    value: &impl EncodeGaugeValue,
) -> Result<(), std::fmt::Error> {
    match &issuer.name {
        Some(name) => {
            let labels = [("issuer", name.as_str())];
            metric.encode_family(&labels)?.encode_gauge(value)
        }
        None => metric.encode_gauge(value),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use prometheus_client::registry::Registry;
    use wire::keys::signing_type::SigningType;
    use wire::keys::{KeySet, VerificationKey};

    use super::*;

    fn exposition(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn the_key_age_appears_with_the_first_key() {
        let keys = Arc::new(CurrentKeys::default());
        let mut registry = Registry::default();
        let issuers = Arc::new(IssuerKeys::new(vec![Arc::clone(&keys)]));
        registry.register_collector(Box::new(KeyMetrics(issuers)));
        assert!(!exposition(&registry).contains("key_age_seconds"));
        let secret = "0123456789abcdef0123456789abcdef";
        let key = VerificationKey::parse(SigningType::Hmac, secret).unwrap();
        keys.install(KeySet::nameless(key), Instant::now());
        let text = exposition(&registry);
        assert!(text.contains("\nkey_age_seconds 0."), "{text}");
        assert!(text.contains("\nkey_generation 1\n"), "{text}");
    }

    #[test]
    fn each_of_several_issuers_has_its_label() {
        let keys =
            ["a", "b"].map(|name| Arc::new(CurrentKeys::default().of(Some(name.to_owned()))));
        let secret = "0123456789abcdef0123456789abcdef";
        let key = VerificationKey::parse(SigningType::Hmac, secret).unwrap();
        keys[1].install(KeySet::nameless(key), Instant::now());
        let mut registry = Registry::default();
        let issuers = Arc::new(IssuerKeys::new(keys.to_vec()));
        registry.register_collector(Box::new(KeyMetrics(issuers)));
        let text = exposition(&registry);
        for line in [
            "keys_available{issuer=\"a\"} 0",
            "keys_available{issuer=\"b\"} 1",
            "key_generation{issuer=\"b\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("key_generation{issuer=\"a\"}"), "{text}");
    }
}
