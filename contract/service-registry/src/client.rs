//! The connection to the registry. The only file that knows `nacos-sdk`, and what has to be known of
//! it:
//!
//! - It connects again and repeats what was registered and subscribed by itself, after pauses that
//!   grow to 64 seconds. What it believes is not checked with the registry: callers ask.
//! - Nothing in it ends before the process does. So there is one client in a process, made even if
//!   the registry is away (`load_cache_at_start` makes that no failure).
//! - A request waits for the connection, however long: every one has a deadline here.

use std::collections::HashMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use nacos_sdk::api::error::Result as NacosResult;
use nacos_sdk::api::naming::{
    NamingChangeEvent, NamingEventListener, NamingService, NamingServiceBuilder, ServiceInstance,
};
use nacos_sdk::api::props::ClientProps;

use crate::instance::Instance;
use crate::login::{Login, LoginError};
use crate::settings::{RegistryError, RegistrySettings};

/// For one answer of the registry, connecting included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// No directory can be made there: the client would otherwise keep the lists it got in the home
/// directory, and believe them at the next start.
const NO_CACHE: &str = "/dev/null";
/// Texts of the registry go into log lines.
const MAX_REASON_CHARACTERS: usize = 200;

/// A connection that lasts as long as the process.
pub struct RegistryClient {
    naming: NamingService,
    login: Arc<Login>,
    settings: RegistrySettings,
}

impl std::fmt::Debug for RegistryClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RegistryClient")
            .field(&self.settings)
            .finish()
    }
}

impl RegistryClient {
    /// Makes the connection, or leaves it to be made later if the registry is away. To be called once,
    /// and waited for: what is given up half-way stays in memory.
    ///
    /// # Errors
    /// [`RegistryError::Failed`] for what trying again does not mend.
    pub async fn start(settings: &RegistrySettings) -> Result<Self, RegistryError> {
        let login = Login::new(settings.address.clone()).map_err(RegistryError::Login)?;
        let login = Arc::new(login);
        let naming = NamingServiceBuilder::new(properties(settings))
            .with_auth_plugin(Arc::clone(&login) as _)
            .build()
            .await
            .map_err(|error| failed(&error))?;
        Ok(Self {
            naming,
            login,
            settings: settings.clone(),
        })
    }

    /// Lists `own` among the instances of the service, for as long as the connection lasts.
    ///
    /// # Errors
    /// [`RegistryError`]; it is then tried again in the background all the same.
    pub async fn register(&self, own: &Instance) -> Result<(), RegistryError> {
        let (service, group) = self.names();
        self.answered(self.naming.register_instance(service, group, entry(own)))
            .await
    }

    /// Takes `own` off the list.
    ///
    /// # Errors
    /// [`RegistryError`]; the end of the process does the same then.
    pub async fn deregister(&self, own: &Instance) -> Result<(), RegistryError> {
        let (service, group) = self.names();
        self.answered(self.naming.deregister_instance(service, group, entry(own)))
            .await
    }

    /// What the registry lists of the service at this moment.
    ///
    /// # Errors
    /// [`RegistryError`] where it does not say.
    pub async fn instances(&self) -> Result<Vec<Instance>, RegistryError> {
        let (service, group) = self.names();
        let listed = self
            .naming
            .get_all_instances(service, group, Vec::new(), false);
        Ok(instances(&self.answered(listed).await?))
    }

    /// Has `changed` called with the new list each time that the registry tells of a change, after this
    /// connection and after later ones.
    pub async fn subscribe(&self, changed: impl Fn(Vec<Instance>) + Send + Sync + 'static) {
        let (service, group) = self.names();
        let listener = Arc::new(Listener(changed));
        let subscribed = self.naming.subscribe(service, group, Vec::new(), listener);
        // It is repeated with every connection; and whether one was made, `instances` tells.
        let _ = self.answered(subscribed).await;
    }

    fn names(&self) -> (String, Option<String>) {
        let RegistrySettings { service, group, .. } = &self.settings;
        (service.clone(), Some(group.clone()))
    }

    async fn answered<T>(
        &self,
        request: impl Future<Output = NacosResult<T>>,
    ) -> Result<T, RegistryError> {
        let login = self.login.ensure().await;
        match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.login.doubt();
                Err(login_failure(login).unwrap_or_else(|| failed(&error)))
            }
            Err(_) => Err(login_failure(login).unwrap_or(RegistryError::Timeout)),
        }
    }
}

fn properties(settings: &RegistrySettings) -> ClientProps {
    ClientProps::new()
        .server_addr(settings.address.servers().join(","))
        .namespace(&settings.namespace)
        .app_name("postern")
        // The settings come from where all of ours do.
        .env_first(false)
        // What an empty list means is the caller's decision.
        .naming_push_empty_protection(false)
        .naming_load_cache_at_start(true)
        .cache_dir(NO_CACHE)
}

fn login_failure(login: Result<(), LoginError>) -> Option<RegistryError> {
    login
        .err()
        .map(|error| RegistryError::Login(error.to_string()))
}

/// One line of bounded length.
fn failed(error: &impl Display) -> RegistryError {
    let text = error.to_string();
    let shown = text
        .chars()
        .take(MAX_REASON_CHARACTERS)
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect();
    RegistryError::Failed(shown)
}

struct Listener<F>(F);

impl<F: Fn(Vec<Instance>) + Send + Sync + 'static> NamingEventListener for Listener<F> {
    fn event(&self, event: Arc<NamingChangeEvent>) {
        (self.0)(instances(event.instances.as_deref().unwrap_or_default()));
    }
}

/// `ephemeral`: the registry drops it when the connection ends.
fn entry(own: &Instance) -> ServiceInstance {
    ServiceInstance {
        ip: own.host.clone(),
        port: own.port.into(),
        weight: own.weight,
        metadata: own.metadata.clone(),
        ..ServiceInstance::default()
    }
}

/// Without those that cannot be connected to.
fn instances(listed: &[ServiceInstance]) -> Vec<Instance> {
    let instance = |listed: &ServiceInstance| {
        let port = u16::try_from(listed.port).ok().filter(|port| *port != 0)?;
        Some(Instance {
            weight: listed.weight,
            healthy: listed.healthy,
            enabled: listed.enabled,
            metadata: HashMap::clone(&listed.metadata),
            ..Instance::new(&listed.ip, port)
        })
    };
    listed.iter().filter_map(instance).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_back_as_it_was_written() {
        let own = Instance {
            metadata: HashMap::from([("secure".to_owned(), "true".to_owned())]),
            ..Instance::new("::1", 9000)
        };
        let written = entry(&own);
        assert!(written.ephemeral && written.enabled && written.healthy);
        assert_eq!(instances(&[written]), [own]);
    }

    #[test]
    fn an_entry_without_a_usable_port_is_left_out() {
        for port in [-1, 0, 65_536] {
            let entry = ServiceInstance {
                port,
                ..entry(&Instance::new("a", 1))
            };
            assert_eq!(instances(&[entry]), []);
        }
    }

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        let text = failed(&format!("a\nb{}", "c".repeat(10_000))).to_string();
        assert!(!text.contains('\n') && text.len() < 300, "{text}");
    }
}
