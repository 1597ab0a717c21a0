//! Installations of each kind of store, with direct access past the driver.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use std::io::Write;
use tests::certificates::Authority;
use tests::redis_server::RedisServer;
use tests::redis_topologies::{Cluster, SENTINEL_PASSWORD, Watched};
use zeroize::Zeroizing;

use super::super::location::StoreLocation;
use super::super::{Entry, KeyStore};
use crate::keys::Half;
use crate::store::envelope_encryption::KeyEncryption;
use crate::store::envelope_encryption::tests::with;
use crate::store::redis::credentials::{CredentialFiles, Credentials};

fn encryption(is_encrypted: bool) -> KeyEncryption {
    if is_encrypted {
        with(1)
    } else {
        KeyEncryption::default()
    }
}

/// Locates a store as named by `--store`.
fn location(address: &str, access: Credentials, is_encrypted: bool) -> StoreLocation {
    StoreLocation::parse(address, access, encryption(is_encrypted)).unwrap()
}

/// One store that several servers may open.
#[async_trait]
pub(crate) trait Installation: Sync {
    fn open(&self) -> Arc<dyn KeyStore>;
    /// `entry` is a half or the ring.
    async fn plant(&self, entry: Entry, text: &str);
    async fn lose(&self, entry: Entry);
    /// Resets the store.
    async fn clear(&self);
}

/// A directory, removed on drop.
pub(crate) struct Files {
    directory: tempfile::TempDir,
    is_encrypted: bool,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            is_encrypted: false,
        }
    }

    /// Encrypts private values; direct access stays in plaintext.
    pub(crate) fn encrypted(self) -> Self {
        Self {
            is_encrypted: true,
            ..self
        }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn location(&self) -> StoreLocation {
        let address = format!("file:{}", self.directory().display());
        location(&address, Credentials::default(), self.is_encrypted)
    }

    pub(crate) fn path(&self, entry: Entry) -> PathBuf {
        self.directory().join(format!("user-token.{}", name(entry)))
    }

    /// Writes a file with the mode that the store uses.
    pub(crate) fn write(&self, path: &std::path::Path, text: &str) {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(self.directory())
            .unwrap();
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }
}

#[async_trait]
impl Installation for Files {
    fn open(&self) -> Arc<dyn KeyStore> {
        self.location().open()
    }

    async fn plant(&self, entry: Entry, text: &str) {
        self.write(&self.path(entry), text);
    }

    async fn lose(&self, entry: Entry) {
        let _ = fs::remove_file(self.path(entry));
    }

    async fn clear(&self) {
        let _ = fs::remove_dir_all(self.directory());
    }
}

/// A redis-server on a socket in a directory of its own, stopped on drop.
pub(crate) struct Redis {
    server: Child,
    directory: tempfile::TempDir,
    is_encrypted: bool,
}

impl Redis {
    /// Starts a server; `None`, with a message, if there is no redis-server; in CI that is a
    /// failure.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(options: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let started = Command::new("redis-server")
            .args([
                "--port",
                "0",
                "--save",
                "",
                "--appendonly",
                "no",
                "--unixsocket",
            ])
            .arg(directory.path().join("redis.sock"))
            .arg("--dir")
            .arg(directory.path())
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(server) = started else {
            skip();
            return None;
        };
        let redis = Self {
            server,
            directory,
            is_encrypted: false,
        };
        redis.await_socket();
        Some(redis)
    }

    /// See [`Files::encrypted`].
    pub(crate) fn encrypted(mut self) -> Self {
        self.is_encrypted = true;
        self
    }

    fn await_socket(&self) {
        let started = Instant::now();
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "redis-server does not come up"
            );
            std::thread::yield_now();
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    pub(crate) fn address(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    pub(crate) fn open_with(&self, password: Option<&str>) -> Arc<dyn KeyStore> {
        self.open_at(&self.address(), password)
    }

    pub(crate) fn open_at(&self, address: &str, password: Option<&str>) -> Arc<dyn KeyStore> {
        let access = Credentials {
            password: password.map(|text| Zeroizing::new(text.to_owned())),
            ..Credentials::default()
        };
        location(address, access, self.is_encrypted).open()
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.server.id()
    }

    /// Runs any command, past the driver.
    pub(crate) async fn command(&self, words: &[&str]) -> redis::Value {
        let client = redis::Client::open(self.address()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        command.query_async(&mut connection).await.unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the person at the terminal has to see what was left out"
)]
fn skip() {
    eprintln!("SKIP redis store – apt-get install redis-server");
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "a skip fails in CI"
    );
}

/// Returns the last part of a key's or a file's name.
fn name(entry: Entry) -> &'static str {
    match entry {
        Entry::Half(Half::Private) => "private",
        Entry::Half(Half::Public) => "public",
        Entry::Ring => "ring",
        _ => unreachable!("{entry:?} is no single value"),
    }
}

fn key(entry: Entry) -> String {
    format!("{{auth:user-token}}:{}", name(entry))
}

#[async_trait]
impl Installation for Redis {
    fn open(&self) -> Arc<dyn KeyStore> {
        self.open_with(None)
    }

    async fn plant(&self, entry: Entry, text: &str) {
        self.command(&["SET", &key(entry), text]).await;
    }

    async fn lose(&self, entry: Entry) {
        self.command(&["DEL", &key(entry)]).await;
    }

    async fn clear(&self) {
        self.command(&["FLUSHALL"]).await;
    }
}

/// A Redis setup of several processes or with certificates.
pub(crate) struct Topology {
    location: StoreLocation,
    servers: Servers,
    /// Its directory holds the certificates, read for each call.
    _authority: Option<Authority>,
}

enum Servers {
    Tls(Box<RedisServer>),
    Watched(Watched),
    Cluster(Cluster),
}

impl Topology {
    pub(crate) fn tls() -> Option<Self> {
        // As in `main`; another test of this process may have been first.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let authority = Authority::new();
        let server = RedisServer::start_with_tls(&authority)?;
        let certificate = authority.issue("client");
        let files = CredentialFiles {
            ca: Some(authority.file()),
            client: Some((certificate.cert, certificate.key)),
            ..CredentialFiles::default()
        };
        let access = Credentials::read(files).unwrap();
        let location = location(&server.url(), access, false);
        Some(Self {
            location,
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
            location: location(&watched.url(), access, false),
            servers: Servers::Watched(watched),
            _authority: None,
        })
    }

    pub(crate) fn cluster() -> Option<Self> {
        let cluster = Cluster::start()?;
        Some(Self {
            location: location(&cluster.url(), Credentials::default(), false),
            servers: Servers::Cluster(cluster),
            _authority: None,
        })
    }

    /// Runs a command past the driver, at the master.
    fn command(&self, words: &[&str]) {
        match &self.servers {
            Servers::Tls(server) => server.command(words),
            Servers::Watched(watched) => watched.master().unwrap().command(words),
            Servers::Cluster(cluster) => cluster.owner().command(words),
        };
    }
}

#[async_trait]
impl Installation for Topology {
    fn open(&self) -> Arc<dyn KeyStore> {
        self.location.open()
    }

    async fn plant(&self, entry: Entry, text: &str) {
        self.command(&["SET", &key(entry), text]);
    }

    async fn lose(&self, entry: Entry) {
        self.command(&["DEL", &key(entry)]);
    }

    async fn clear(&self) {
        self.command(&["FLUSHALL"]);
    }
}
