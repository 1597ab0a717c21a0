//! Readiness by the keys, and by the revocation list where one is required: of one issuer, whichever
//! it is. An issuer that is away must not take the tokens of the others with it.

use std::sync::Arc;

use parking_lot::Mutex;
use runtime::admin::health::Condition;

/// The readiness text before the first fetch.
pub(crate) const NOT_FETCHED: &str = "not fetched yet";

/// The readiness of all issuers, which share one condition.
#[derive(Debug)]
struct Shared {
    condition: Condition,
    issuers: Mutex<Vec<Reported>>,
}

/// The reports about one issuer.
#[derive(Debug)]
struct Reported {
    name: Option<String>,
    /// The reason why no key is usable.
    keys: Option<String>,
    /// The reason why a required revocation list does not count.
    list: Option<String>,
}

/// The handle by which the refresh of one issuer reports.
#[derive(Debug, Clone)]
pub(crate) struct KeyReadiness {
    shared: Arc<Shared>,
    issuer: usize,
}

impl KeyReadiness {
    /// Returns a handle for each issuer; none is ready.
    pub(crate) fn of_each(
        condition: Condition,
        names: impl Iterator<Item = Option<String>>,
    ) -> Vec<Self> {
        let issuers: Vec<_> = names.map(Reported::not_fetched).collect();
        let count = issuers.len();
        let shared = Arc::new(Shared {
            condition,
            issuers: Mutex::new(issuers),
        });
        let handle = |issuer| Self {
            shared: Arc::clone(&shared),
            issuer,
        };
        (0..count).map(handle).collect()
    }

    pub(crate) fn set_ready(&self) {
        self.set(|reported| reported.keys = None);
    }

    pub(crate) fn set_not_ready(&self, reason: impl Into<String>) {
        self.set(|reported| reported.keys = Some(reason.into()));
    }

    /// Reports the reason why a required revocation list does not count, or that it does.
    pub(crate) fn set_list(&self, reason: Option<&str>) {
        let reason = reason.map(|reason| format!("revocation list {reason}"));
        self.set(|reported| reported.list = reason);
    }

    fn set(&self, report: impl FnOnce(&mut Reported)) {
        let mut issuers = self.shared.issuers.lock();
        if let Some(reported) = issuers.get_mut(self.issuer) {
            report(reported);
        }
        let missing: Vec<_> = issuers.iter().filter_map(Reported::missing).collect();
        let is_ready = missing.len() < issuers.len();
        // Under the lock, so that no older report overwrites a newer one.
        if is_ready {
            self.shared.condition.set_ready();
        } else {
            self.shared.condition.set_not_ready(missing.join("; "));
        }
    }
}

/// The readiness of the only issuer.
impl From<Condition> for KeyReadiness {
    fn from(condition: Condition) -> Self {
        Self {
            shared: Arc::new(Shared {
                condition,
                issuers: Mutex::new(vec![Reported::not_fetched(None)]),
            }),
            issuer: 0,
        }
    }
}

impl Reported {
    fn not_fetched(name: Option<String>) -> Self {
        Self {
            name,
            keys: Some(NOT_FETCHED.to_owned()),
            list: None,
        }
    }

    /// Describes an issuer that is not ready.
    fn missing(&self) -> Option<String> {
        let reason = self.keys.as_ref().or(self.list.as_ref())?;
        Some(match &self.name {
            Some(name) => format!("{name}: {reason}"),
            None => reason.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use runtime::admin::health::Health;

    use super::*;

    /// Returns a started program with two issuers.
    fn of_two() -> (Health, Vec<KeyReadiness>) {
        let health = Health::new();
        health.set_started();
        let names = ["a", "b"].map(|name| Some(name.to_owned()));
        let condition = health.condition("verification_key", NOT_FETCHED);
        let handles = KeyReadiness::of_each(condition, names.into_iter());
        (health, handles)
    }

    /// Returns the readiness after each report of two issuers.
    fn reported(reports: &[(usize, bool)]) -> Vec<bool> {
        let (health, handles) = of_two();
        let report = |(issuer, ready): &(usize, bool)| {
            if let Some(handle) = handles.get(*issuer) {
                match ready {
                    true => handle.set_ready(),
                    false => handle.set_not_ready("away"),
                }
            }
            health.is_ready()
        };
        reports.iter().map(report).collect()
    }

    #[test]
    fn one_issuer_is_needed() {
        let reports = [(0, false), (1, true), (0, true), (1, false), (0, false)];
        assert_eq!(reported(&reports), [false, true, true, true, false]);
    }

    #[test]
    fn a_stale_required_list_of_one_issuer_leaves_the_others_ready() {
        let (health, handles) = of_two();
        handles.iter().for_each(KeyReadiness::set_ready);
        if let [stale, other] = &handles[..] {
            stale.set_list(Some("stale"));
            assert!(health.is_ready());
            other.set_not_ready("away");
            assert!(!health.is_ready());
            stale.set_list(None);
        }
        assert!(health.is_ready());
    }

    #[test]
    fn the_missing_issuers_are_named() {
        let (health, handles) = of_two();
        handles.iter().take(1).for_each(|a| a.set_not_ready("away"));
        let keys = health.conditions().into_iter().find(|found| !found.ok);
        let reason = keys.and_then(|found| found.reason);
        assert_eq!(reason.as_deref(), Some("a: away; b: not fetched yet"));
    }
}
