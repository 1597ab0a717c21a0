//! Addresses of a Redis store: one server, a Unix socket, Sentinels, a cluster.
//!
//! `redis://`, `redis+unix://`, `redis+sentinel://HOST,HOST/MASTER/DB`,
//! `redis+cluster://HOST,HOST`; the TCP forms with `rediss` instead of `redis` for TLS. `?wait=N` after
//! all but the last: number of replicas that acknowledge each commit.

use std::error::Error;

use pem::Pem;
use postern_http::host::host_port::host_and_port;
use postern_http::host::loopback::is_loopback_host;
use postern_transport::tls::peer::PeerCertificates;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult,
    TlsCertificates,
};
use rustls::pki_types::CertificateDer;

use super::TIMEOUT;
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

/// Sentinels, queried for the current master at each connection.
pub(super) struct Sentinels {
    /// The clients of the Sentinels, at least one.
    pub(super) clients: Vec<Client>,
    /// The master's name.
    pub(super) name: String,
    /// Connection settings of the master, at the address of a Sentinel.
    master: ConnectionInfo,
    certificates: Option<TlsCertificates>,
}

/// An endpoint, and the places of its servers.
pub(super) struct Address {
    pub(super) endpoint: Endpoint,
    /// Replicas that must have acknowledged a commit.
    pub(super) replicas: u8,
    /// True if data leaves this host unencrypted.
    pub(super) is_in_clear: bool,
}

type Parsed<T> = Result<T, Box<dyn Error>>;

/// An endpoint, and the connection settings of its servers.
struct Target {
    endpoint: Endpoint,
    infos: Vec<ConnectionInfo>,
}

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// Describes the error without the address, which may hold a password.
    pub(super) fn parse(text: &str, access: &Credentials) -> Result<Self, String> {
        // The client takes `#insecure` as permission to accept any certificate.
        if text.contains('#') {
            return Err("it may not have a fragment".to_owned());
        }
        // `wait` is our own parameter, which the client library does not know.
        let (text, replicas) = replicas(text)?;
        let (scheme, rest) = text.split_once("://").ok_or("it has no host")?;
        let (transport, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        if transport != "rediss" && access.tls != PeerCertificates::default() {
            return Err("--store-ca and --store-client-cert are for rediss".to_owned());
        }
        if kind != "sentinel"
            && (access.files.store_sentinel_user.is_some() || access.sentinel_password.is_some())
        {
            return Err("--store-sentinel-… are for redis+sentinel".to_owned());
        }
        let parsed = match kind {
            "sentinel" => sentinels(transport, rest, access),
            // In a cluster the number would be the least of all masters'.
            "cluster" if replicas > 0 => Err("a cluster takes no ?wait=".into()),
            "cluster" => cluster(transport, rest, access),
            _ => one(text, access),
        };
        let target = parsed.map_err(|error| error.to_string())?;
        Ok(Self {
            endpoint: target.endpoint,
            replicas,
            is_in_clear: target.infos.iter().any(is_in_clear),
        })
    }
}

fn is_in_clear(info: &ConnectionInfo) -> bool {
    match info.addr() {
        ConnectionAddr::Tcp(host, _) => !is_loopback_host(host),
        _ => false,
    }
}

impl Sentinels {
    /// Returns the client of the master at this address.
    pub(super) fn client_of(&self, host: String, port: u16) -> RedisResult<Client> {
        let address = match self.master.addr() {
            ConnectionAddr::TcpTls { .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        let master = self.master.clone().set_addr(address);
        client(master, self.certificates.as_ref())
    }
}

/// Splits off `?wait=N`.
fn replicas(text: &str) -> Result<(&str, u8), &'static str> {
    if let Some((address, number)) = text.split_once("?wait=") {
        return match number.parse() {
            Ok(replicas @ 1..) => Ok((address, replicas)),
            _ => Err("?wait= is the number of replicas, from 1"),
        };
    }
    if text.contains("&wait=") {
        return Err("?wait= stands alone in the query");
    }
    Ok((text, 0))
}

/// Returns `None` for the system's authorities without a client certificate.
fn certificates(access: &Credentials) -> Option<TlsCertificates> {
    if access.tls == PeerCertificates::default() {
        return None;
    }
    Some(TlsCertificates {
        root_cert: access.tls.authorities.as_deref().map(as_pem),
        client_tls: access.tls.identity.as_ref().map(|client| ClientTlsConfig {
            client_cert: client.chain.clone(),
            client_key: client.key.as_bytes().to_vec(),
        }),
    })
}

fn as_pem(certificates: &[CertificateDer<'static>]) -> Vec<u8> {
    let mut blocks = Vec::new();
    for one in certificates {
        blocks.push(Pem::new("CERTIFICATE", one.as_ref()));
    }
    pem::encode_many(&blocks).into_bytes()
}

fn client(info: ConnectionInfo, certificates: Option<&TlsCertificates>) -> RedisResult<Client> {
    match certificates {
        Some(certificates) => Client::build_with_tls(info, certificates.clone()),
        None => Client::open(info),
    }
}

fn one(text: &str, access: &Credentials) -> Parsed<Target> {
    let info = with_password(text.into_connection_info()?, access);
    let client = client(info.clone(), certificates(access).as_ref())?;
    Ok(Target {
        endpoint: Endpoint::One(Box::new(client)),
        infos: vec![info],
    })
}

fn sentinels(transport: &str, rest: &str, access: &Credentials) -> Parsed<Target> {
    let hosts = Hosts::parse(rest)?;
    let (master, database) = hosts.path.split_once('/').unwrap_or((hosts.path, ""));
    if master.is_empty() {
        return Err("it needs the name of the master after the hosts: …:26379/mymaster".into());
    }
    let infos = hosts.infos(transport, database, SENTINEL_PORT, access)?;
    let certificates = certificates(access);
    let mut clients = Vec::new();
    for configured in &infos {
        // The user, password and database of the address are for the master, not the Sentinel.
        let info = configured.addr().clone().into_connection_info()?;
        let mut settings = info.redis_settings().clone();
        if let Some(user) = &access.files.store_sentinel_user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &access.sentinel_password {
            settings = settings.set_password(password.as_str());
        }
        clients.push(client(
            info.set_redis_settings(settings),
            certificates.as_ref(),
        )?);
    }
    let sentinels = Sentinels {
        clients,
        name: master.to_owned(),
        master: infos.first().ok_or("it has no host")?.clone(),
        certificates,
    };
    Ok(Target {
        endpoint: Endpoint::Sentinels(Box::new(sentinels)),
        infos,
    })
}

fn cluster(transport: &str, rest: &str, access: &Credentials) -> Parsed<Target> {
    let hosts = Hosts::parse(rest)?;
    if !matches!(hosts.path, "" | "0") {
        return Err("a cluster has no databases".into());
    }
    let infos = hosts.infos(transport, "", REDIS_PORT, access)?;
    let mut builder = ClusterClientBuilder::new(infos.clone())
        .connection_timeout(TIMEOUT)
        .response_timeout(TIMEOUT)
        .retries(CLUSTER_RETRIES);
    if let Some(certificates) = certificates(access) {
        builder = builder.certs(certificates);
    }
    Ok(Target {
        endpoint: Endpoint::Cluster(Box::new(builder.build()?)),
        infos,
    })
}

/// `[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT]/PATH`.
struct Hosts<'a> {
    user: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
}

impl<'a> Hosts<'a> {
    fn parse(rest: &'a str) -> Parsed<Self> {
        if rest.contains('?') {
            return Err("it may not have a query".into());
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // The last `@` counts, as a password may hold others, and a host holds no `@`.
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
    ) -> Parsed<Vec<ConnectionInfo>> {
        let mut infos = Vec::new();
        for host in &self.hosts {
            let port = match host_and_port(host) {
                Some((_, None)) => format!(":{default_port}"),
                _ => String::new(),
            };
            let url = format!("{transport}://{}{host}{port}/{database}", self.user);
            infos.push(with_password(url.into_connection_info()?, access));
        }
        Ok(infos)
    }
}

fn with_password(info: ConnectionInfo, access: &Credentials) -> ConnectionInfo {
    let Some(password) = &access.password else {
        return info;
    };
    let settings = info.redis_settings().clone();
    info.set_redis_settings(settings.set_password(password.as_str()))
}
