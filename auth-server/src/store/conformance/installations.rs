//! Installations of each kind of store, with direct access past the driver.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use rusqlite::Connection;
use tests::services::redis_server;
use tests::services::redis_topologies::{Cluster, SENTINEL_PASSWORD, Watched};
use tests::wire::certificates::Authority;
use zeroize::Zeroizing;

use super::super::Store;
use super::super::directory::Access;
use super::super::redis::RedisStore;
use super::super::redis::credentials::{CredentialFiles, Credentials};
use super::super::simulated::{Fair, SimulatedStore};
use super::super::sqlite::SqliteStore;

/// One store that several servers may open.
#[async_trait]
pub(crate) trait Installation: Sync {
    fn open(&self) -> Arc<dyn Store>;
    /// Resets the store.
    async fn clear(&self);
}

/// A directory, removed on drop.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

#[async_trait]
impl Installation for Files {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::new(self.0.path().join("data"), Access::Write))
    }

    async fn clear(&self) {
        let database = self.0.path().join("data/store.db");
        let emptied = "DELETE FROM record; DELETE FROM log; UPDATE last SET number = 0";
        if database.exists() {
            let database = Connection::open(database).unwrap();
            database.execute_batch(emptied).unwrap();
        }
    }
}

/// A store that only this process has.
pub(crate) struct Memory(Mutex<Arc<SqliteStore>>);

impl Memory {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(SqliteStore::in_memory().unwrap()))
    }
}

#[async_trait]
impl Installation for Memory {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(Arc::clone(&self.0.lock()))
    }

    async fn clear(&self) {
        *self.0.lock() = SqliteStore::in_memory().unwrap();
    }
}

/// The store of the simulation, where nothing fails.
pub(crate) struct Simulated(SimulatedStore);

impl Simulated {
    pub(crate) fn new() -> Self {
        Self(SimulatedStore::new(true, false))
    }
}

#[async_trait]
impl Installation for Simulated {
    fn open(&self) -> Arc<dyn Store> {
        self.0.reached_through(Arc::new(Fair))
    }

    async fn clear(&self) {
        self.0.flush();
    }
}

/// A redis-server, stopped on drop.
pub(crate) struct Redis(pub(crate) redis_server::Redis);

impl Redis {
    /// Starts a server; `None`, with a message, if there is no redis-server.
    pub(crate) fn start() -> Option<Self> {
        redis_server::Redis::start().map(Self)
    }

    pub(crate) fn store(&self) -> RedisStore {
        RedisStore::new(&self.0.url(), Credentials::default()).unwrap()
    }
}

#[async_trait]
impl Installation for Redis {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.store())
    }

    async fn clear(&self) {
        self.0.command(&["FLUSHALL"]);
    }
}

/// A Redis setup of several processes or with certificates.
pub(crate) struct Topology {
    store: Arc<RedisStore>,
    servers: Servers,
    /// Its directory holds the certificates, read for each connection.
    _authority: Option<Authority>,
}

enum Servers {
    Tls(Box<redis_server::Redis>),
    Watched(Watched),
    Cluster(Cluster),
}

impl Topology {
    pub(crate) fn tls() -> Option<Self> {
        // As in `main`; another test of this process may have been first.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let authority = Authority::new();
        let server = redis_server::Redis::start_with_tls(&authority)?;
        let certificate = authority.issue("client");
        let files = CredentialFiles {
            store_ca: Some(authority.file()),
            store_client_cert: Some(certificate.cert),
            store_client_key: Some(certificate.key),
            ..CredentialFiles::default()
        };
        let access = Credentials::read(files).unwrap();
        Some(Self {
            store: store(&server.url(), access),
            servers: Servers::Tls(Box::new(server)),
            _authority: Some(authority),
        })
    }

    pub(crate) fn watched() -> Option<Self> {
        let watched = Watched::start()?;
        let access = Credentials {
            sentinel_password: Some(Zeroizing::new(SENTINEL_PASSWORD.to_owned())),
            ..Credentials::default()
        };
        Some(Self {
            store: store(&watched.url(), access),
            servers: Servers::Watched(watched),
            _authority: None,
        })
    }

    pub(crate) fn cluster() -> Option<Self> {
        let cluster = Cluster::start()?;
        Some(Self {
            store: store(&cluster.url(), Credentials::default()),
            servers: Servers::Cluster(cluster),
            _authority: None,
        })
    }
}

fn store(address: &str, access: Credentials) -> Arc<RedisStore> {
    Arc::new(RedisStore::new(address, access).unwrap())
}

#[async_trait]
impl Installation for Topology {
    fn open(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    async fn clear(&self) {
        let words = ["FLUSHALL"];
        match &self.servers {
            Servers::Tls(server) => server.command(&words),
            Servers::Watched(watched) => watched.master().unwrap().command(&words),
            Servers::Cluster(cluster) => cluster.owner().command(&words),
        };
    }
}
