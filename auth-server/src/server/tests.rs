//! A whole server in this process, with stores that fail in rare ways.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use super::*;
use crate::cli::{Cli, Command};
use crate::store::{Change, Key, Kind, LogEntry, Outcome, StoreError, Stored};

/// Takes any change, and panics at the next read, as a library may.
#[derive(Debug, Default)]
struct PanickingStore {
    was_changed: AtomicBool,
}

#[async_trait]
impl Store for PanickingStore {
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>, StoreError> {
        assert!(
            !self.was_changed.load(Ordering::Relaxed),
            "an index is out of bounds"
        );
        Ok(vec![None; keys.len()])
    }

    async fn list(&self, _: Kind) -> Result<Vec<(String, Stored)>, StoreError> {
        Ok(Vec::new())
    }

    async fn ids(&self, _: Kind, _: &str) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn commit(&self, _: Vec<Change>) -> Result<Outcome, StoreError> {
        self.was_changed.store(true, Ordering::Relaxed);
        Ok(Outcome::Committed)
    }

    async fn since(&self, _: i64) -> Result<Vec<LogEntry>, StoreError> {
        Ok(Vec::new())
    }

    async fn now(&self) -> Result<i64, StoreError> {
        Ok(0)
    }

    fn describe(&self, key: &Key) -> String {
        key.id.clone()
    }
}

#[tokio::test]
async fn a_server_whose_synchronization_ends_stops_to_be_restarted() {
    let flags = [
        "auth-server",
        "serve",
        "--listen=127.0.0.1:0",
        "--admin-listen=127.0.0.1:0",
        "--store-poll-interval=1",
    ];
    let Command::Serve(args) = runtime::command_line::parse_words::<Cli>(flags)
        .unwrap()
        .command
    else {
        unreachable!("the command is serve")
    };
    let config = Config::from_args(&args).unwrap();
    let store = Arc::<PanickingStore>::default();
    let public = listener::bind(Port::Public, args.listening.listen).unwrap();
    let serving = serve_on(public, &args, config, store);
    let outcome = tokio::time::timeout(Duration::from_secs(60), serving).await;

    let failure = outcome.unwrap().unwrap_err();
    assert_eq!(failure.code(), 70);
    let line = failure.to_string();
    assert!(
        line.starts_with("the synchronization has ended: ") && line.contains("out of bounds"),
        "{line}"
    );
}
