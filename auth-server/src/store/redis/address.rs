//! Addresses of a Redis store: one server, a Unix socket, Sentinels, a cluster.
//!
//! `redis://`, `redis+unix://`, `redis+sentinel://HOST,HOST/MASTER/DB`,
//! `redis+cluster://HOST,HOST`; the TCP forms with `rediss` instead of `redis` for TLS.

use std::time::Duration;

use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, TlsMode,
};
use runtime::net::loopback::is_loopback_host;

use super::credentials::Credentials;

const SENTINEL_PORT: u16 = 26_379;
const REDIS_PORT: u16 = 6379;

/// Retries of the cluster client: redirections, a master being replaced.
const CLUSTER_RETRIES: u32 = 4;

/// A connection target. Not `Clone`: it holds passwords and a key.
pub(super) enum Endpoint {
    One(Box<Client>),
    Sentinels(Box<Sentinels>),
    Cluster(Box<ClusterClient>),
}

/// Sentinels, queried for the current master at each call.
pub(super) struct Sentinels {
    addresses: Vec<ConnectionAddr>,
    master: String,
    /// Connection settings of the master and its replicas.
    redis: RedisConnectionInfo,
    user: Option<String>,
    password: Option<String>,
    tls: Option<Option<TlsCertificates>>,
}

/// A printable address without user and password, and its endpoint.
pub(super) struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) redacted: String,
    /// True if data leaves this host unencrypted.
    pub(super) is_in_clear: bool,
}

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// Describes the error without the address, which may hold a password.
    pub(super) fn parse(
        text: &str,
        access: &Credentials,
        timeout: Duration,
    ) -> Result<Self, String> {
        // The client takes `#insecure` as permission to accept any certificate.
        if text.contains('#') {
            return Err("it may not have a fragment".to_owned());
        }
        let (scheme, rest) = text.split_once("://").ok_or("it has no host")?;
        let (transport, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = (transport == "rediss").then(|| certificates(access));
        if tls.is_none() && (access.ca.is_some() || access.client.is_some()) {
            return Err("--store-ca and --store-client-cert are for rediss".to_owned());
        }
        if kind != "sentinel"
            && (access.files.store_sentinel_user.is_some() || access.sentinel_password.is_some())
        {
            return Err("--store-sentinel-… are for redis+sentinel".to_owned());
        }
        match kind {
            "sentinel" => sentinels(transport, rest, access, tls),
            "cluster" => cluster(transport, rest, access, tls, timeout),
            _ => one(text, access, tls),
        }
        .map_err(|error| error.to_string())
    }
}

impl Sentinels {
    pub(super) fn client(&self) -> RedisResult<SentinelClient> {
        let mut builder = SentinelClientBuilder::new(
            self.addresses.iter().cloned(),
            &self.master,
            SentinelServerType::Master,
        )?
        .set_client_to_redis_db(self.redis.db())
        .set_client_to_redis_protocol(self.redis.protocol());
        if let Some(user) = self.redis.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = self.redis.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(user) = &self.user {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = &self.password {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if let Some(certificates) = &self.tls {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_tls_mode(TlsMode::Secure);
            if let Some(certificates) = certificates {
                builder = builder
                    .set_client_to_redis_certificates(certificates.clone())
                    .set_client_to_sentinel_certificates(certificates.clone());
            }
        }
        builder.build()
    }
}

/// Returns `None` for the system's authorities without a client certificate.
fn certificates(access: &Credentials) -> Option<TlsCertificates> {
    if access.ca.is_none() && access.client.is_none() {
        return None;
    }
    Some(TlsCertificates {
        root_cert: access.ca.clone(),
        client_tls: access.client.as_ref().map(|client| ClientTlsConfig {
            client_cert: client.chain.clone(),
            client_key: client.key.as_bytes().to_vec(),
        }),
    })
}

fn one(
    text: &str,
    access: &Credentials,
    tls: Option<Option<TlsCertificates>>,
) -> Result<Address, AddressError> {
    let info = with_password(text.into_connection_info()?, access);
    let redacted = match info.addr() {
        ConnectionAddr::Unix(socket) => {
            let database = info.redis_settings().db();
            format!("redis+unix://{}?db={database}", socket.display())
        }
        address => format!(
            "{}://{}/{}",
            if tls.is_some() { "rediss" } else { "redis" },
            host_and_port(address),
            info.redis_settings().db()
        ),
    };
    let is_in_clear = is_in_clear(info.addr());
    let client = match tls.flatten() {
        Some(certificates) => Client::build_with_tls(info, certificates)?,
        None => Client::open(info)?,
    };
    Ok(Address {
        endpoint: Endpoint::One(Box::new(client)),
        redacted,
        is_in_clear,
    })
}

fn sentinels(
    transport: &str,
    rest: &str,
    access: &Credentials,
    tls: Option<Option<TlsCertificates>>,
) -> Result<Address, AddressError> {
    let hosts = Hosts::parse(rest)?;
    let (master, database) = hosts.path.split_once('/').unwrap_or((hosts.path, ""));
    if master.is_empty() {
        return Err("it needs the name of the master after the hosts: …:26379/mymaster".into());
    }
    let infos = hosts.infos(transport, database, SENTINEL_PORT, access)?;
    let redis = first(&infos)?.redis_settings().clone();
    let addresses: Vec<_> = infos.iter().map(|info| info.addr().clone()).collect();
    let redacted = format!(
        "{transport}+sentinel://{}/{master}/{}",
        listed(&addresses),
        redis.db()
    );
    let is_in_clear = addresses.iter().any(is_in_clear);
    let sentinels = Sentinels {
        addresses,
        master: master.to_owned(),
        redis,
        user: access.files.store_sentinel_user.clone(),
        password: access
            .sentinel_password
            .as_ref()
            .map(|text| text.to_string()),
        tls,
    };
    sentinels.client()?;
    Ok(Address {
        endpoint: Endpoint::Sentinels(Box::new(sentinels)),
        redacted,
        is_in_clear,
    })
}

fn cluster(
    transport: &str,
    rest: &str,
    access: &Credentials,
    tls: Option<Option<TlsCertificates>>,
    timeout: Duration,
) -> Result<Address, AddressError> {
    let hosts = Hosts::parse(rest)?;
    if !matches!(hosts.path, "" | "0") {
        return Err("a cluster has no databases".into());
    }
    let infos = hosts.infos(transport, "", REDIS_PORT, access)?;
    let addresses: Vec<_> = infos.iter().map(|info| info.addr().clone()).collect();
    let redacted = format!("{transport}+cluster://{}", listed(&addresses));
    let is_in_clear = addresses.iter().any(is_in_clear);
    let mut builder = ClusterClientBuilder::new(infos)
        .connection_timeout(timeout)
        .response_timeout(timeout)
        .retries(CLUSTER_RETRIES);
    if let Some(certificates) = tls.flatten() {
        builder = builder.certs(certificates);
    }
    Ok(Address {
        endpoint: Endpoint::Cluster(Box::new(builder.build()?)),
        redacted,
        is_in_clear,
    })
}

/// `[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT]/PATH`.
struct Hosts<'a> {
    user: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
}

impl<'a> Hosts<'a> {
    fn parse(rest: &'a str) -> Result<Self, AddressError> {
        if rest.contains('?') {
            return Err("it may not have a query".into());
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rfind('@') {
            Some(at) => authority.split_at(at + 1),
            None => ("", authority),
        };
        let hosts: Vec<_> = hosts.split(',').collect();
        if hosts.contains(&"") {
            return Err("it needs hosts, such as one:6379,two:6379".into());
        }
        Ok(Self { user, hosts, path })
    }

    /// Parses each host as an address of its own: the client's parser knows escapes and IPv6.
    fn infos(
        &self,
        transport: &str,
        database: &str,
        default_port: u16,
        access: &Credentials,
    ) -> Result<Vec<ConnectionInfo>, AddressError> {
        let infos = self.hosts.iter().map(|host| {
            let port = if has_port(host) {
                String::new()
            } else {
                format!(":{default_port}")
            };
            let url = format!("{transport}://{}{host}{port}/{database}", self.user);
            Ok(with_password(url.as_str().into_connection_info()?, access))
        });
        infos.collect()
    }
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':')
        .is_some_and(|(_, port)| !port.ends_with(']'))
}

fn with_password(info: ConnectionInfo, access: &Credentials) -> ConnectionInfo {
    let Some(password) = &access.password else {
        return info;
    };
    let settings = info
        .redis_settings()
        .clone()
        .set_password(password.as_str());
    info.set_redis_settings(settings)
}

fn first(infos: &[ConnectionInfo]) -> Result<&ConnectionInfo, AddressError> {
    infos.first().ok_or_else(|| "it has no host".into())
}

fn is_in_clear(address: &ConnectionAddr) -> bool {
    matches!(address, ConnectionAddr::Tcp(host, _) if !is_loopback_host(host))
}

fn listed(addresses: &[ConnectionAddr]) -> String {
    let addresses: Vec<_> = addresses.iter().map(host_and_port).collect();
    addresses.join(",")
}

fn host_and_port(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }
            if host.contains(':') =>
        {
            format!("[{host}]:{port}")
        }
        other => other.to_string(),
    }
}

#[derive(Debug, thiserror::Error)]
enum AddressError {
    #[error("{0}")]
    Here(&'static str),
    #[error(transparent)]
    Client(#[from] RedisError),
}

impl From<&'static str> for AddressError {
    fn from(text: &'static str) -> Self {
        Self::Here(text)
    }
}
