//! The instances that a Nacos registry lists (contract §4.3). A background task polls the list, so that ticks
//! do not wait for the registry, and the last list stays in use while it is down.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use postern_process::pauses::Pauses;
use registry::{Instance as Listed, RegistryClient, RegistrySettings};
use tokio::net::lookup_host;
use tokio::sync::watch;

use super::{DiscoveryError, Instance, RecentAttempts, in_time};

/// Wait for the first list in the first tick: an unresponsive registry must not use up the tick.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause between two polls, with up to a fifth more or less: a fleet that starts together spreads.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
const RETRIES: Pauses = Pauses {
    first: Duration::from_millis(500),
    last: POLL_INTERVAL,
};

/// The known list; `None` before the first response of the registry.
type Lists = watch::Receiver<Option<Arc<[Listed]>>>;

/// The auth server by its name in the registry. Clones share the list.
#[derive(Debug, Clone)]
pub(crate) struct NacosService {
    pub(crate) settings: RegistrySettings,
    /// The name in the certificate of every instance; `None`: the registered address.
    server_name: Option<String>,
    /// The list, which a task polls from the first use on.
    lists: Arc<OnceLock<Lists>>,
}

impl NacosService {
    pub(crate) fn new(settings: RegistrySettings, server_name: Option<String>) -> Self {
        Self {
            settings,
            server_name,
            lists: Arc::default(),
        }
    }

    /// Chooses among the listed instances.
    pub(crate) async fn next_instance(
        &self,
        attempts: &RecentAttempts,
    ) -> Result<Instance, DiscoveryError> {
        let listed = self.list().await?;
        let usable = listed.iter().filter(|listed| listed.is_usable()).collect();
        // Prefer instances whose last attempt has not failed.
        let candidates = attempts.not_failed(usable, |listed| listed.authority());
        let last = attempts.last().map(|instance| instance.authority.as_str());
        match choose(&candidates, last, fastrand::f64()) {
            Some(chosen) => self.instance(chosen).await,
            None => Err(DiscoveryError::NoneListed {
                service: self.settings.service().to_owned(),
                registry: self.settings.to_string(),
            }),
        }
    }

    /// Returns the instance to connect to. A registered host name is resolved by the HTTP client, unless the
    /// URL has to hold the name of the certificate.
    async fn instance(&self, listed: &Listed) -> Result<Instance, DiscoveryError> {
        let authority = listed.authority();
        let address = match (listed.host.parse::<IpAddr>(), &self.server_name) {
            (Ok(ip), _) => Some(SocketAddr::new(ip, listed.port)),
            (Err(_), None) => None,
            (Err(_), Some(_)) => Some(lookup(&authority).await?),
        };
        let host = match &self.server_name {
            Some(name) => format!("{name}:{}", listed.port),
            None => authority.clone(),
        };
        Ok(Instance {
            authority,
            address,
            host,
        })
    }

    async fn list(&self) -> Result<Arc<[Listed]>, DiscoveryError> {
        let mut lists = self
            .lists
            .get_or_init(|| start_polling(self.settings.clone()))
            .clone();
        let first = tokio::time::timeout(FIRST_LIST_TIMEOUT, lists.wait_for(Option::is_some));
        // An error within means that the polling task has ended, as the runtime does.
        if let Ok(Ok(known)) = first.await
            && let Some(list) = &*known
        {
            return Ok(Arc::clone(list));
        }
        Err(DiscoveryError::RegistryAway {
            registry: self.settings.to_string(),
        })
    }
}

fn start_polling(settings: RegistrySettings) -> Lists {
    let (sender, lists) = watch::channel(None);
    tokio::spawn(poll(settings, sender));
    lists
}

async fn poll(settings: RegistrySettings, lists: watch::Sender<Option<Arc<[Listed]>>>) {
    let registry = settings.to_string();
    let mut client = RegistryClient::new(settings);
    let mut failures = 0;
    loop {
        let pause = match client.instances().await {
            Ok(listed) => {
                if failures > 0 {
                    tracing::info!(registry, "the registry responds again");
                }
                take(&lists, listed);
                failures = 0;
                POLL_INTERVAL
            }
            Err(error) => {
                if failures == 0 {
                    // Warn at the first failure of a row alone.
                    tracing::warn!(
                        registry, %error,
                        "no list from the registry; keeping the last list of instances"
                    );
                }
                failures += 1;
                RETRIES.after(failures)
            }
        };
        tokio::time::sleep(pause.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
    }
}

/// Updates the list; the only place that does.
fn take(lists: &watch::Sender<Option<Arc<[Listed]>>>, listed: Vec<Listed>) {
    lists.send_if_modified(|known| {
        let Some(next) = replacement(known.as_deref(), listed) else {
            return false;
        };
        let instances = next
            .iter()
            .map(Listed::authority)
            .collect::<Vec<_>>()
            .join(" ");
        if next.iter().any(Listed::is_usable) {
            tracing::info!(instances, "instances of the auth server");
        } else {
            tracing::warn!(instances, "the registry lists no usable auth server");
        }
        *known = Some(next);
        true
    });
}

/// Returns the new list; `None` to keep the known one.
///
/// Keeps the last known instances in place of an empty list, which a registry has after a restart. A list of
/// unhealthy or disabled instances is taken as it is.
fn replacement(known: Option<&[Listed]>, mut listed: Vec<Listed>) -> Option<Arc<[Listed]>> {
    // The registry lists in any order; sorted lists can be compared.
    listed.sort_by_key(Listed::authority);
    match known {
        None => Some(listed.into()),
        Some(_) if listed.is_empty() => None,
        Some(known) if known == listed => None,
        Some(_) => Some(listed.into()),
    }
}

/// Chooses by weight, `random` being 0 up to 1; the last instance only if there is no other.
fn choose<'a>(candidates: &[&'a Listed], last: Option<&str>, random: f64) -> Option<&'a Listed> {
    let is_other = |listed: &&&Listed| last != Some(listed.authority().as_str());
    let others: Vec<&Listed> = candidates.iter().filter(is_other).copied().collect();
    let others = if others.is_empty() {
        candidates
    } else {
        &others
    };
    let mut point = random * others.iter().map(|listed| listed.weight).sum::<f64>();
    others
        .iter()
        .find(|listed| {
            // The instances share the line from 0 to `total`; the one that `point` falls on is chosen.
            point -= listed.weight;
            point < 0.0
        })
        // Rounding may leave `point` at 0 or above after the last instance.
        .or(others.last())
        .copied()
}

async fn lookup(authority: &str) -> Result<SocketAddr, DiscoveryError> {
    in_time(authority, lookup_host(authority))
        .await?
        .next()
        .ok_or_else(|| DiscoveryError::NoAddress {
            name: authority.to_owned(),
        })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn listed(host: &str, weight: f64) -> Listed {
        Listed {
            weight,
            ..Listed::new(host, 9000)
        }
    }

    #[test]
    fn weights_decide_and_the_last_instance_is_not_repeated() {
        let all = [listed("a", 1.0), listed("b", 3.0), listed("c", 4.0)];
        let all: Vec<&Listed> = all.iter().collect();
        for (last, random, chosen) in [
            (None, 0.0, "a"),
            (None, 0.124, "a"),
            (None, 0.125, "b"),
            (None, 0.499, "b"),
            (None, 0.5, "c"),
            (None, 0.999, "c"),
            (None, 1.0, "c"),
            (Some("a:9000"), 0.0, "b"),
            (Some("c:9000"), 0.999, "b"),
            (Some("gone:9000"), 0.0, "a"),
        ] {
            let found = choose(&all, last, random).unwrap();
            assert_eq!(found.host, chosen, "{last:?} {random}");
        }
        assert_eq!(choose(&all[..1], Some("a:9000"), 0.5).unwrap().host, "a");
        assert_eq!(choose(&[], None, 0.5), None);
    }

    #[test]
    fn no_weight_breaks_the_choice() {
        let heavy = [listed("a", f64::MAX), listed("b", f64::MAX)];
        let heavy: Vec<&Listed> = heavy.iter().collect();
        for random in [0.0, 0.5, 1.0] {
            assert!(choose(&heavy, None, random).is_some());
        }
    }

    #[test]
    fn an_empty_list_keeps_the_known_instances() {
        let (a, b) = (listed("a", 1.0), listed("b", 1.0));
        let ill = Listed {
            healthy: false,
            ..a.clone()
        };
        let next = |known: Option<&[Listed]>, listed: &[&Listed]| {
            let listed = listed.iter().copied().cloned().collect();
            replacement(known, listed).map(|list| list.to_vec())
        };
        let both = [a.clone(), b.clone()];
        assert_eq!(next(None, &[]), Some(vec![]));
        assert_eq!(next(None, &[&b, &a]), Some(both.to_vec()));
        assert_eq!(next(Some(&both), &[&b, &a]), None, "in another order");
        assert_eq!(next(Some(&both), &[&b]), Some(vec![b]));
        assert_eq!(next(Some(&both), &[&ill]), Some(vec![ill]));
        assert_eq!(next(Some(&both), &[]), None);
        assert_eq!(next(Some(&[]), &[&a]), Some(vec![a]));
    }

    async fn found(host: &str, server_name: Option<&str>) -> Instance {
        let settings = RegistrySettings::for_server("nacos://registry").unwrap();
        let service = NacosService::new(settings, server_name.map(ToOwned::to_owned));
        let listed = Listed::new(host, 9000);
        service.instance(&listed).await.unwrap()
    }

    #[tokio::test]
    async fn registered_names_are_resolved_and_addresses_used_as_is() {
        let instance = found("10.0.0.1", None).await;
        assert_eq!(instance.authority, "10.0.0.1:9000");
        assert_eq!(instance.address, Some(([10, 0, 0, 1], 9000).into()));
        let instance = found("fd00::1", None).await;
        assert_eq!(instance.host, "[fd00::1]:9000");
        assert_eq!(instance.address.unwrap().to_string(), "[fd00::1]:9000");
        assert_eq!(found("auth-1", None).await.address, None);
    }

    #[tokio::test]
    async fn every_instance_has_the_configured_name() {
        let instance = found("10.0.0.1", Some("auth.internal")).await;
        assert_eq!(instance.authority, "10.0.0.1:9000");
        assert_eq!(instance.host, "auth.internal:9000");
        assert_eq!(instance.address, Some(([10, 0, 0, 1], 9000).into()));
        let instance = found("localhost", Some("auth.internal")).await;
        assert_eq!(instance.host, "auth.internal:9000");
        assert!(instance.address.unwrap().ip().is_loopback());
    }
}
