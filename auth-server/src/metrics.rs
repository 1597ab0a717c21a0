//! Every metric of this program, by name.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// `ok`, or the reason code of the refusal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// Label value of what went well.
pub(crate) const OK: &str = "ok";

/// The metrics; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    logins: Family<Outcome, Counter>,
    key_retrievals: Family<Outcome, Counter>,
    store_up: Gauge,
    builtin_users: Gauge,
}

impl Metrics {
    /// Adds every metric to the registry that the admin port shows.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("auth_server_build", "The running program", build);
        registry.register(
            "auth_server_logins",
            "Logins by outcome",
            self.logins.clone(),
        );
        registry.register(
            "auth_server_key_retrievals",
            "Retrievals of the verification key by outcome",
            self.key_retrievals.clone(),
        );
        registry.register(
            "auth_server_store_up",
            "Whether the last look into the key store succeeded",
            self.store_up.clone(),
        );
        registry.register(
            "auth_server_builtin_users",
            "Whether any name with any password logs in as the built-in user",
            self.builtin_users.clone(),
        );
    }

    pub(crate) fn login(&self, outcome: &'static str) {
        self.logins.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn key_retrieval(&self, outcome: &'static str) {
        self.key_retrievals
            .get_or_create(&Outcome { outcome })
            .inc();
    }

    pub(crate) fn store_up(&self, up: bool) {
        self.store_up.set(i64::from(up));
    }

    pub(crate) fn builtin_users(&self) {
        self.builtin_users.set(1);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn each_metric_stands_under_its_name() {
        let metrics = Metrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        metrics.login(OK);
        metrics.key_retrieval("application_unknown");
        metrics.store_up(true);
        metrics.builtin_users();

        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"auth_server_logins_total{outcome="ok"} 1"#,
            r#"auth_server_key_retrievals_total{outcome="application_unknown"} 1"#,
            "auth_server_store_up 1",
            "auth_server_builtin_users 1",
            concat!(
                r#"auth_server_build_info{version=""#,
                env!("CARGO_PKG_VERSION"),
                r#""} 1"#
            ),
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
