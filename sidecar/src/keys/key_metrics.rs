//! Age, number and cost of the keys at the time of a scrape.

use std::sync::Arc;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

use super::current::CurrentKeys;

/// Metrics that are computed at the scrape. All but the first are absent without a key.
#[derive(Debug)]
pub(crate) struct KeyMetrics(pub(crate) Arc<CurrentKeys>);

impl Collector for KeyMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (state, now) = (self.0.load(), Instant::now());
        let usable = self.0.usable(state.as_deref(), now).is_ok();
        let usable = ConstGauge::new(u64::from(usable));
        for (name, help) in [
            (
                "keys_available",
                "1 with a verification key that is not too old, else 0",
            ),
            ("keys_usable", "Former name of keys_available"),
        ] {
            usable.encode(encoder.encode_descriptor(name, help, None, usable.metric_type())?)?;
        }
        let Some(state) = state.as_ref() else {
            return Ok(());
        };
        let age = ConstGauge::new(state.age(now).as_secs_f64());
        let generation = ConstGauge::new(state.generation());
        let cached = ConstGauge::new(state.verified_tokens().bytes());
        age.encode(encoder.encode_descriptor(
            "key_age_seconds",
            "Seconds since the verification key was last fetched",
            None,
            age.metric_type(),
        )?)?;
        generation.encode(encoder.encode_descriptor(
            "key_generation",
            "How often the verification key has changed since the start",
            None,
            generation.metric_type(),
        )?)?;
        cached.encode(encoder.encode_descriptor(
            "token_cache_bytes",
            "Memory of the token cache",
            None,
            cached.metric_type(),
        )?)?;
        let Some(revocations) = state.revocations() else {
            return Ok(());
        };
        let entries = u64::try_from(revocations.list().entries()).unwrap_or(u64::MAX);
        let entries = ConstGauge::new(entries);
        entries.encode(encoder.encode_descriptor(
            "revocations",
            "Entries of the revocation list in force",
            None,
            entries.metric_type(),
        )?)?;
        let age = ConstGauge::new(revocations.age(now).as_secs_f64());
        age.encode(encoder.encode_descriptor(
            "revocation_age_seconds",
            "Seconds since the revocation list was last fetched",
            None,
            age.metric_type(),
        )?)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use contract::keys::signing_type::SigningType;
    use contract::keys::{KeySet, VerificationKey};
    use prometheus_client::registry::Registry;

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
        registry.register_collector(Box::new(KeyMetrics(Arc::clone(&keys))));
        assert!(!exposition(&registry).contains("key_age_seconds"));
        let secret = "0123456789abcdef0123456789abcdef";
        let key = VerificationKey::parse(SigningType::Hmac, secret).unwrap();
        keys.install(KeySet::nameless(key), Instant::now());
        let text = exposition(&registry);
        assert!(text.contains("\nkey_age_seconds 0."), "{text}");
        assert!(text.contains("\nkey_generation 1\n"), "{text}");
    }
}
