//! The HTTP API of Nacos: version 3, and version 1 for servers of Nacos 1 and 2, which have only
//! version 1. Paths, parameters and responses; no connection.

use http::Method;
use postern_http::host::host_port::host_and_port;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::error::RegistryError;
use crate::instance::Instance;
use crate::settings::RegistrySettings;

/// The codes of Nacos 3 and 1 for an instance that the server has dropped.
const INSTANCE_NOT_FOUND: [i64; 2] = [21003, 20404];
/// The codes of a success.
const SUCCESS: [i64; 2] = [0, 10200];

/// A version of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    V3,
    V1,
}

/// A request in both versions.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call<'a> {
    LogIn { user: &'a str, password: &'a str },
    Register(&'a Instance),
    Renew(&'a Instance),
    Deregister(&'a Instance),
    List,
}

/// Parameters, which are a form in a POST, and otherwise a query.
pub(crate) type Parameters = Vec<(&'static str, String)>;

impl Api {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::V3 => Self::V1,
            Self::V1 => Self::V3,
        }
    }

    pub(crate) const fn target(self, call: Call<'_>) -> (Method, &'static str) {
        match (self, call) {
            (Self::V3, Call::LogIn { .. }) => (Method::POST, "/nacos/v3/auth/user/login"),
            (Self::V3, Call::Register(_) | Call::Renew(_)) => {
                (Method::POST, "/nacos/v3/client/ns/instance")
            }
            (Self::V3, Call::Deregister(_)) => (Method::DELETE, "/nacos/v3/client/ns/instance"),
            (Self::V3, Call::List) => (Method::GET, "/nacos/v3/client/ns/instance/list"),
            (Self::V1, Call::LogIn { .. }) => (Method::POST, "/nacos/v1/auth/login"),
            (Self::V1, Call::Register(_)) => (Method::POST, "/nacos/v1/ns/instance"),
            (Self::V1, Call::Renew(_)) => (Method::PUT, "/nacos/v1/ns/instance/beat"),
            (Self::V1, Call::Deregister(_)) => (Method::DELETE, "/nacos/v1/ns/instance"),
            (Self::V1, Call::List) => (Method::GET, "/nacos/v1/ns/instance/list"),
        }
    }

    pub(crate) fn parameters(self, call: Call<'_>, settings: &RegistrySettings) -> Parameters {
        let mut parameters = match call {
            Call::LogIn { user, password } => {
                return vec![("username", user.into()), ("password", password.into())];
            }
            // Some servers list only healthy instances by default.
            Call::List => vec![("healthyOnly", "false".to_owned())],
            Call::Register(own) | Call::Renew(own) | Call::Deregister(own) => vec![
                ("ip", own.host.clone()),
                ("port", own.port.to_string()),
                ("ephemeral", "true".to_owned()),
            ],
        };
        parameters.extend([
            ("serviceName", settings.service.clone()),
            ("groupName", settings.group.clone()),
        ]);
        if !settings.namespace.is_empty() {
            parameters.push(("namespaceId", settings.namespace.clone()));
        }
        match (self, call) {
            (_, Call::Register(own)) => {
                parameters.push(("metadata", json!(own.metadata).to_string()));
            }
            (Self::V3, Call::Renew(_)) => parameters.push(("heartBeat", "true".to_owned())),
            // Nacos 1 restores a dropped instance from the renewal, which holds the whole instance.
            (Self::V1, Call::Renew(own)) => parameters.push(("beat", beat(own, settings))),
            _ => {}
        }
        parameters
    }

    /// Checks the response to a registration or deregistration.
    pub(crate) fn done(self, body: &[u8]) -> Result<(), RegistryError> {
        match self {
            Self::V3 => success(body).map(|_: Option<String>| ()),
            Self::V1 if body.trim_ascii() == b"ok" => Ok(()),
            Self::V1 => Err(RegistryError::NotUnderstood),
        }
    }

    /// Returns false for an instance that the server has dropped.
    pub(crate) fn renewed(body: &[u8]) -> Result<bool, RegistryError> {
        match success::<String>(body) {
            Ok(_) => Ok(true),
            Err(RegistryError::Code(code)) if INSTANCE_NOT_FOUND.contains(&code) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the listed instances that have a usable address.
    pub(crate) fn instances(self, body: &[u8]) -> Result<Vec<Instance>, RegistryError> {
        let entries = match self {
            Self::V3 => success(body)?.ok_or(RegistryError::NotUnderstood)?,
            Self::V1 => parsed::<Hosts>(body)?.hosts,
        };
        Ok(entries.into_iter().filter_map(Entry::instance).collect())
    }
}

/// Returns the text of the whole instance, from which a server of Nacos 1 or 2 restores a dropped instance.
fn beat(own: &Instance, settings: &RegistrySettings) -> String {
    let service = format!("{}@@{}", settings.group, settings.service);
    json!({
        "serviceName": service, "cluster": "DEFAULT", "ip": own.host, "port": own.port,
        "weight": own.weight, "metadata": own.metadata, "scheduled": true,
    })
    .to_string()
}

/// The response of Nacos 3, and the response to a renewal of Nacos 1.
#[derive(Deserialize)]
struct Outcome<T> {
    code: i64,
    data: Option<T>,
}

/// The list of instances in a response of Nacos 1.
#[derive(Deserialize)]
struct Hosts {
    hosts: Vec<Entry>,
}

/// A listed instance.
#[derive(Deserialize)]
struct Entry {
    ip: String,
    port: i64,
    weight: f64,
    healthy: bool,
    enabled: bool,
}

impl Entry {
    fn instance(self) -> Option<Instance> {
        let port = u16::try_from(self.port).ok().filter(|port| *port != 0)?;
        let instance = Instance {
            weight: self.weight,
            healthy: self.healthy,
            enabled: self.enabled,
            ..Instance::new(&self.ip, port)
        };
        // The authority becomes part of a URL.
        host_and_port(&instance.authority()).map(|_| instance)
    }
}

pub(crate) fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, RegistryError> {
    serde_json::from_slice(body).map_err(|_| RegistryError::NotUnderstood)
}

fn success<T: DeserializeOwned>(body: &[u8]) -> Result<Option<T>, RegistryError> {
    let outcome: Outcome<T> = parsed(body)?;
    if SUCCESS.contains(&outcome.code) {
        Ok(outcome.data)
    } else {
        Err(RegistryError::Code(outcome.code))
    }
}
