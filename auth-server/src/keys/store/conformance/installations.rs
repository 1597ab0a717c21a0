//! A place for each kind of store, with a back door to put values there past the driver.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use std::io::Write;

use super::super::location::StoreLocation;
use super::super::{Entry, KeyStore};
use crate::keys::Half;

/// One store, which several servers may open.
#[async_trait]
pub(crate) trait Installation: Sync {
    fn open(&self) -> Arc<dyn KeyStore>;
    /// `entry` is a half or the ring.
    async fn plant(&self, entry: Entry, text: &str);
    async fn lose(&self, entry: Entry);
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

    pub(crate) fn path(&self, entry: Entry) -> PathBuf {
        self.directory().join(format!("user-token.{}", name(entry)))
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

    async fn plant(&self, entry: Entry, text: &str) {
        self.write(&self.path(entry), text);
    }

    async fn lose(&self, entry: Entry) {
        let _ = fs::remove_file(self.path(entry));
    }

    async fn plant_application(&self, id: &str, record: &str) {
        let record = serde_json::from_str(record).unwrap_or_else(|_| serde_json::json!(record));
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

/// The last part of a key's or a file's name.
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

    async fn plant_application(&self, id: &str, record: &str) {
        self.command(&["HSET", "{auth:user-token}:applications", id, record])
            .await;
    }
}
