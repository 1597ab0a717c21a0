//! The connection to the registry. The only file that knows `nacos-sdk` and its properties:
//!
//! - It connects again and repeats registrations and subscriptions by itself, after pauses that
//!   grow to 64 seconds. It does not check its state with the registry: callers do.
//! - Nothing in it ends before the process does. So a process has one client, made even if the
//!   registry is away (`load_cache_at_start` avoids a failure then).
//! - A request waits for the connection without limit: here each one has a deadline.

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

/// Deadline of one response of the registry, connecting included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// A path where no directory can be made: otherwise the client would keep its lists in the home
/// directory and use them at the next start.
const NO_CACHE: &str = "/dev/null";
/// Limit of the registry's texts in log lines.
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
    /// Connects now, or later if the registry is away. To be called once and awaited: an abandoned
    /// start stays in memory.
    ///
    /// # Errors
    /// [`RegistryError::Failed`] for errors that a retry does not solve.
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
    /// [`RegistryError`]; the client retries in the background all the same.
    pub async fn register(&self, own: &Instance) -> Result<(), RegistryError> {
        let (service, group) = self.names();
        self.request(self.naming.register_instance(service, group, entry(own)))
            .await
    }

    /// Removes `own` from the list.
    ///
    /// # Errors
    /// [`RegistryError`]; the end of the process then removes it.
    pub async fn deregister(&self, own: &Instance) -> Result<(), RegistryError> {
        let (service, group) = self.names();
        self.request(self.naming.deregister_instance(service, group, entry(own)))
            .await
    }

    /// Returns the present instances of the service.
    ///
    /// # Errors
    /// [`RegistryError`]
    pub async fn instances(&self) -> Result<Vec<Instance>, RegistryError> {
        let (service, group) = self.names();
        let listed = self
            .naming
            .get_all_instances(service, group, Vec::new(), false);
        Ok(instances(&self.request(listed).await?))
    }

    /// Calls `changed` with the new list at each change, on this connection and on later ones.
    pub async fn subscribe(&self, changed: impl Fn(Vec<Instance>) + Send + Sync + 'static) {
        let (service, group) = self.names();
        let listener = Arc::new(Listener(changed));
        let subscribed = self.naming.subscribe(service, group, Vec::new(), listener);
        // Every new connection repeats it, and `instances` shows a missing one.
        let _ = self.request(subscribed).await;
    }

    fn names(&self) -> (String, Option<String>) {
        let RegistrySettings { service, group, .. } = &self.settings;
        (service.clone(), Some(group.clone()))
    }

    async fn request<T>(
        &self,
        request: impl Future<Output = NacosResult<T>>,
    ) -> Result<T, RegistryError> {
        let login = self.login.ensure().await;
        match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                self.login.invalidate_token();
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
        // Only our settings count.
        .env_first(false)
        // The caller decides about an empty list.
        .naming_push_empty_protection(false)
        .naming_load_cache_at_start(true)
        .cache_dir(NO_CACHE)
}

fn login_failure(login: Result<(), LoginError>) -> Option<RegistryError> {
    login
        .err()
        .map(|error| RegistryError::Login(error.to_string()))
}

/// Returns the error as one line of bounded length.
fn failed(error: &impl Display) -> RegistryError {
    let text = error.to_string();
    let reason = text
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
    RegistryError::Failed(reason)
}

struct Listener<F>(F);

impl<F: Fn(Vec<Instance>) + Send + Sync + 'static> NamingEventListener for Listener<F> {
    fn event(&self, event: Arc<NamingChangeEvent>) {
        (self.0)(instances(event.instances.as_deref().unwrap_or_default()));
    }
}

/// Returns an ephemeral entry: the registry drops it when the connection ends.
fn entry(own: &Instance) -> ServiceInstance {
    ServiceInstance {
        ip: own.host.clone(),
        port: own.port.into(),
        weight: own.weight,
        metadata: own.metadata.clone(),
        ..ServiceInstance::default()
    }
}

/// Returns the instances that have a port.
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
