//! The instances that a Nacos registry lists (contract §4.3). The list is followed in the background, so
//! that it is at hand when a tick comes, and stays while the registry is away.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use service_registry::{Instance as Listed, RegistryClient, RegistrySettings};
use tokio::net::lookup_host;
use tokio::sync::watch;

use super::resolver::in_time;
use super::{Asked, DiscoveryError, Instance};

/// The first tick comes before the first list; a registry that does not answer must not use up a tick.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(3);
/// Changes are pushed. A push can be lost, and with it what it told.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// After a failure; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// What is known of the list; `None` until the registry has answered.
type Lists = watch::Receiver<Option<Arc<[Listed]>>>;

/// The auth server by its name in the registry. Clones share what is known.
#[derive(Debug, Clone)]
pub(crate) struct NacosService {
    settings: RegistrySettings,
    /// What the certificate of every instance names; `None`: the address that is registered.
    server_name: Option<String>,
    /// Followed from the first question on.
    lists: Arc<OnceLock<Lists>>,
}

/// By what was configured.
impl PartialEq for NacosService {
    fn eq(&self, other: &Self) -> bool {
        (&self.settings, &self.server_name) == (&other.settings, &other.server_name)
    }
}

impl Eq for NacosService {}

impl NacosService {
    pub(crate) fn new(settings: RegistrySettings, server_name: Option<String>) -> Self {
        Self {
            settings,
            server_name,
            lists: Arc::default(),
        }
    }

    pub(crate) fn settings(&self) -> &RegistrySettings {
        &self.settings
    }

    /// Chooses among what is listed at this moment.
    pub(crate) async fn next_instance(&self, asked: &Asked) -> Result<Instance, DiscoveryError> {
        let listed = self.listed().await?;
        let usable = listed.iter().filter(|listed| listed.is_usable()).collect();
        let candidates = asked.not_failed(usable, |listed| listed.authority());
        let last = asked.last().map(|instance| instance.authority.as_str());
        match choose(&candidates, last, fastrand::f64()) {
            Some(chosen) => self.instance(chosen).await,
            None => Err(DiscoveryError::NoneListed {
                service: self.settings.service().to_owned(),
                registry: self.settings.address().to_string(),
            }),
        }
    }

    /// A registered name is left to the HTTP client, unless the URL has to hold another one.
    async fn instance(&self, listed: &Listed) -> Result<Instance, DiscoveryError> {
        let authority = listed.authority();
        let address = match (listed.host.parse::<IpAddr>(), &self.server_name) {
            (Ok(ip), _) => Some(SocketAddr::new(ip, listed.port)),
            (Err(_), None) => None,
            (Err(_), Some(_)) => Some(look_up(&authority).await?),
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

    async fn listed(&self) -> Result<Arc<[Listed]>, DiscoveryError> {
        let lists = self.lists.get_or_init(|| follow(self.settings.clone()));
        let mut lists = lists.clone();
        let first = tokio::time::timeout(FIRST_LIST_TIMEOUT, lists.wait_for(Option::is_some));
        // An error means that nobody follows any more: the runtime ends.
        let listed = first.await.ok().and_then(Result::ok);
        listed
            .and_then(|listed| listed.clone())
            .ok_or_else(|| DiscoveryError::RegistryAway {
                registry: self.settings.address().to_string(),
            })
    }
}

fn follow(settings: RegistrySettings) -> Lists {
    let (sender, lists) = watch::channel(None);
    tokio::spawn(begun_again(move || {
        let (settings, sender) = (settings.clone(), sender.clone());
        Follower { settings, sender }.run()
    }));
    lists
}

/// The end of it would be a panic, which the log tells of; until then and after it the last list is good.
async fn begun_again<F>(work: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let _ = tokio::spawn(work()).await;
        tokio::time::sleep(LONGEST_PAUSE).await;
    }
}

struct Follower {
    settings: RegistrySettings,
    sender: watch::Sender<Option<Arc<[Listed]>>>,
}

impl Follower {
    async fn run(self) {
        let registry = self.settings.address().to_string();
        let client = self.connected().await;
        let pushed = self.sender.clone();
        let changed = move |listed| take(&pushed, listed);
        client.subscribe(changed).await;
        let (mut pause, mut away) = (FIRST_PAUSE, false);
        loop {
            match client.instances().await {
                Ok(listed) => {
                    if std::mem::replace(&mut away, false) {
                        tracing::info!(registry, "the registry answers again");
                    }
                    take(&self.sender, listed);
                    pause = FIRST_PAUSE;
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                Err(error) => {
                    if !std::mem::replace(&mut away, true) {
                        tracing::warn!(
                            registry, %error,
                            "the registry is not to be reached; the last list of instances stays"
                        );
                    }
                    tokio::time::sleep(pause).await;
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
            }
        }
    }

    /// The client fails to be made for want of a thread or a descriptor, not of a registry.
    async fn connected(&self) -> RegistryClient {
        loop {
            match RegistryClient::start(&self.settings).await {
                Ok(client) => return client,
                Err(error) => {
                    tracing::warn!(%error, "the registry client does not start; trying again");
                    tokio::time::sleep(LONGEST_PAUSE).await;
                }
            }
        }
    }
}

/// The only place where the list changes.
fn take(lists: &watch::Sender<Option<Arc<[Listed]>>>, listed: Vec<Listed>) {
    lists.send_if_modified(|known| {
        let Some(next) = replacement(known.as_deref(), listed) else {
            return false;
        };
        let instances: Vec<_> = next.iter().map(Listed::authority).collect();
        let instances = instances.join(" ");
        if next.iter().any(Listed::is_usable) {
            tracing::info!(instances, "instances of the auth server");
        } else {
            tracing::warn!(instances, "the registry lists no usable auth server");
        }
        *known = Some(next);
        true
    });
}

/// What is known from now on; `None`: what was known.
///
/// A list without any instance is what a registry has that restarted a moment ago, before the instances
/// are back: then the last known ones are good. One that lists only such as are ill or switched off means
/// what it says.
fn replacement(known: Option<&[Listed]>, mut listed: Vec<Listed>) -> Option<Arc<[Listed]>> {
    listed.sort_by_key(Listed::authority);
    match known {
        None => Some(listed.into()),
        Some(_) if listed.is_empty() => None,
        Some(known) if known == listed => None,
        Some(_) => Some(listed.into()),
    }
}

/// One of them by weight, `random` being 0 up to 1; the one that was asked last only if there is no other.
fn choose<'a>(candidates: &[&'a Listed], last: Option<&str>, random: f64) -> Option<&'a Listed> {
    let is_other = |listed: &&&Listed| last != Some(listed.authority().as_str());
    let others: Vec<&Listed> = candidates.iter().filter(is_other).copied().collect();
    let others = if others.is_empty() {
        candidates
    } else {
        &others
    };
    let total: f64 = others.iter().map(|listed| listed.weight).sum();
    let mut point = random * total;
    let hit = others.iter().find(|listed| {
        point -= listed.weight;
        point < 0.0
    });
    hit.or(others.last()).copied()
}

async fn look_up(authority: &str) -> Result<SocketAddr, DiscoveryError> {
    let mut addresses = in_time(authority, lookup_host(authority)).await?;
    addresses.next().ok_or_else(|| DiscoveryError::NoAddress {
        name: authority.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test fails by panicking, and one of them is about that"
    )]
    use service_registry::RegistryAddress;

    use super::*;

    fn listed(host: &str, weight: f64) -> Listed {
        Listed {
            weight,
            ..Listed::new(host, 9000)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_that_panics_is_begun_again() {
        let (sender, mut begun) = watch::channel(0);
        let following = begun_again(move || {
            sender.send_modify(|times| *times += 1);
            async { panic!("oh") }
        });
        let begun = begun.wait_for(|times| *times == 3);
        tokio::select! {
            () = following => unreachable!("it has no end"),
            three_times = begun => assert!(three_times.is_ok()),
        }
    }

    #[test]
    fn weights_decide_and_the_last_one_is_not_asked_again_while_there_is_another() {
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
    fn an_empty_list_is_one_of_a_registry_that_has_just_restarted() {
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
        let address = RegistryAddress::parse("registry").unwrap();
        let settings = RegistrySettings::new(address);
        let service = NacosService::new(settings, server_name.map(ToOwned::to_owned));
        let listed = Listed::new(host, 9000);
        service.instance(&listed).await.unwrap()
    }

    #[tokio::test]
    async fn an_address_is_connected_to_as_it_is_and_a_name_is_looked_up() {
        let instance = found("10.0.0.1", None).await;
        assert_eq!(instance.authority, "10.0.0.1:9000");
        assert_eq!(instance.address, Some(([10, 0, 0, 1], 9000).into()));
        let instance = found("fd00::1", None).await;
        assert_eq!(instance.host, "[fd00::1]:9000");
        assert_eq!(instance.address.unwrap().to_string(), "[fd00::1]:9000");
        assert_eq!(found("auth-1", None).await.address, None);
    }

    #[tokio::test]
    async fn a_configured_name_is_the_one_of_every_instance() {
        let instance = found("10.0.0.1", Some("auth.internal")).await;
        assert_eq!(instance.authority, "10.0.0.1:9000");
        assert_eq!(instance.host, "auth.internal:9000");
        assert_eq!(instance.address, Some(([10, 0, 0, 1], 9000).into()));
        let instance = found("localhost", Some("auth.internal")).await;
        assert_eq!(instance.host, "auth.internal:9000");
        assert!(instance.address.unwrap().ip().is_loopback());
    }
}
