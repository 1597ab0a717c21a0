//! A place for each kind of store, with a back door to put values there past the driver.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use std::io::Write;

use super::super::KeyStore;
use super::super::location::StoreLocation;
use crate::keys::Half;

/// One store, which several servers may open.
#[async_trait]
pub(crate) trait Installation: Sync {
    fn open(&self) -> Arc<dyn KeyStore>;
    async fn plant(&self, half: Half, text: &str);
    async fn lose(&self, half: Half);
    async fn plant_application(&self, id: &str, record: &str);
}

/// A directory that is removed in the end.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.0.path().join("data")
    }

    pub(crate) fn path(&self, half: Half) -> PathBuf {
        self.directory().join(match half {
            Half::Private => "user-token.private",
            Half::Public => "user-token.public",
        })
    }

    /// As the store itself would have written it.
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
        StoreLocation::File(self.directory()).open()
    }

    async fn plant(&self, half: Half, text: &str) {
        self.write(&self.path(half), text);
    }

    async fn lose(&self, half: Half) {
        let _ = fs::remove_file(self.path(half));
    }

    async fn plant_application(&self, id: &str, record: &str) {
        let json = serde_json::json!({ id: record }).to_string();
        self.write(&self.directory().join("applications.json"), &json);
    }
}

/// A redis-server of our own on a socket in a directory of our own; it ends with the test.
pub(crate) struct Redis {
    server: Child,
    directory: tempfile::TempDir,
}

impl Redis {
    /// `None`, with a line saying so, where there is no redis-server; in CI that is a failure.
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
        let redis = Self { server, directory };
        redis.await_socket();
        Some(redis)
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
        StoreLocation::parse(&self.address(), password)
            .unwrap()
            .open()
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.server.id()
    }

    /// Any command, past the driver.
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
    reason = "whoever runs the tests has to see what was left out"
)]
fn skip() {
    eprintln!("SKIP redis store – apt-get install redis-server");
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "a skip fails in CI"
    );
}

const fn key(half: Half) -> &'static str {
    match half {
        Half::Private => "{auth:user-token}:private",
        Half::Public => "{auth:user-token}:public",
    }
}

#[async_trait]
impl Installation for Redis {
    fn open(&self) -> Arc<dyn KeyStore> {
        self.open_with(None)
    }

    async fn plant(&self, half: Half, text: &str) {
        self.command(&["SET", key(half), text]).await;
    }

    async fn lose(&self, half: Half) {
        self.command(&["DEL", key(half)]).await;
    }

    async fn plant_application(&self, id: &str, record: &str) {
        self.command(&["HSET", "{auth:user-token}:applications", id, record])
            .await;
    }
}
