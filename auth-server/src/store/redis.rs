//! The shared store: Redis or a compatible server, for any number of servers.
//!
//! One hash tag keeps the store's keys in one cluster slot, so that a script may change all of them at once.
//! A call that succeeded leaves its connection to later calls.
//!
//! A record is a string of its own, and its version the digest of the string. The script that commits keeps
//! an index for each kind and each group (a sorted set of ids, by the end of the record), and the entries of
//! the log (a sorted set by id, and another one by end).

mod address;
mod connection;
pub(crate) mod credentials;
mod failure;
mod route;
mod scripts;

use std::time::{Duration, Instant};

use ::redis::{Cmd, ErrorKind, FromRedisValue, RedisError};
use async_trait::async_trait;
use postern_http::host::host_port::redacted;
use postern_transport::tls::failure::in_words;
use tokio::time::timeout;

use self::address::Address;
use self::connection::Connection;
use self::credentials::Credentials;
use self::failure::{Failed, is_halfway, is_lasting, is_worth_repeating};
use self::route::Route;
use self::scripts::{log_entry, record_key, stored};
use super::{
    CALL_TIMEOUT, Change, Key, Kind, LogEntry, Outcome, Store, StoreError, Stored, ended_records,
};

/// Timeout of one attempt: a store in the same data centre responds in milliseconds.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time for `?wait=N` replicas to acknowledge, within the timeout of a response.
const ACKNOWLEDGEMENT_MS: u16 = 1000;
/// Time for which a connection is used again: a connection to a former master, or with former rights, serves
/// no later call.
const KEPT: Duration = Duration::from_secs(1);
/// Pause before the retry of a call that a failover interrupted.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct RedisStore {
    route: Route,
    /// Connections that no call uses.
    kept: parking_lot::Mutex<Vec<(Instant, Connection)>>,
    /// The error of the last commit that was left half done, until a check has reported it.
    half_done: parking_lot::Mutex<Option<StoreError>>,
    /// The address without user, password and parameters.
    pub(super) redacted: String,
    /// Replicas that must have acknowledged a commit.
    replicas: u8,
    /// True if data leaves this host unencrypted.
    pub(super) is_in_clear: bool,
}

impl RedisStore {
    /// Parses the address; does not connect.
    ///
    /// # Errors
    /// Describes the error without the address, which may hold a password.
    pub(crate) fn new(address: &str, access: Credentials) -> Result<Self, String> {
        let parsed = Address::parse(address, &access)?;
        Ok(Self {
            route: Route::new(address, access, parsed.endpoint),
            kept: parking_lot::Mutex::default(),
            half_done: parking_lot::Mutex::default(),
            redacted: redacted(address),
            replicas: parsed.replicas,
            is_in_clear: parsed.is_in_clear,
        })
    }

    /// Returns the warning of a certificate that has expired at `now`, in seconds since 1970, or will soon.
    pub(super) fn ending_certificate(&self, now: i64) -> Option<String> {
        self.route.in_force().content.tls.ending(now)
    }

    /// Runs a command that may run twice, with one retry.
    async fn call<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        self.twice(command, 0)
            .await
            .map_err(|failed| self.store_error(&failed))
    }

    /// Commits once: if the first attempt has committed, the second one changes nothing.
    async fn commit_once(&self, command: &Cmd) -> Result<bool, StoreError> {
        let failed = match self.twice(command, self.replicas).await {
            Ok(has_committed) => return Ok(has_committed),
            // The command was not sent, or the server rejected it before its first write.
            Err(failed) if !failed.may_have_arrived => return Err(self.store_error(&failed)),
            Err(failed) => failed,
        };
        let unclear = StoreError::Unclear(self.describe_failure(&failed));
        // Kept for the next poll, which reports it: the caller sees only an unclear outcome.
        if is_halfway(&failed.error) {
            *self.half_done.lock() = Some(unclear.clone());
        }
        Err(unclear)
    }

    async fn twice<T: FromRedisValue>(&self, command: &Cmd, replicas: u8) -> Result<T, Failed> {
        let attempts = async {
            let first = match self.attempt(command, replicas).await {
                // After a failover, or the end of a connection, the same command may run on the new
                // master: by its mark a repeated commit changes nothing.
                Err(failed) if is_worth_repeating(&failed.error) => failed,
                outcome => return outcome,
            };
            // Other kept connections may lead to the same former master.
            self.kept.lock().clear();
            tokio::time::sleep(PAUSE).await;
            // The outcome is unclear if either attempt may have arrived.
            self.attempt(command, replicas)
                .await
                .map_err(|last| last.after(&first))
        };
        match timeout(CALL_TIMEOUT, attempts).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failed::on_the_way((ErrorKind::Io, "no response").into())),
        }
    }

    async fn attempt<T: FromRedisValue>(&self, command: &Cmd, replicas: u8) -> Result<T, Failed> {
        let (opened, mut connection) = self.connection().await?;
        let done = connection
            .query(command)
            .await
            .map_err(|error| Failed::from_query(error, connection.repeats()))?;
        // On the same connection: `WAIT` counts what this connection has written.
        wait_for_replicas(&mut connection, replicas)
            .await
            .map_err(Failed::on_the_way)?;
        // Kept only after success: bytes left unread by a failure would be the next call's response.
        self.kept.lock().push((opened, connection));
        Ok(done)
    }

    /// Returns a connection, and the time when it was made. A kept connection is tried before its use,
    /// because a command that is sent on an ended connection may have arrived.
    async fn connection(&self) -> Result<(Instant, Connection), Failed> {
        if let Some((opened, mut connection)) = self.take_kept() {
            // A harmless command tries the connection: a commit on an ended one would be unclear.
            if let Ok(Ok(())) = timeout(TIMEOUT, connection.query(&scripts::time())).await {
                return Ok((opened, connection));
            }
        }
        let in_force = self.route.followed().await;
        Ok((Instant::now(), Connection::open(&in_force.value).await?))
    }

    fn take_kept(&self) -> Option<(Instant, Connection)> {
        let mut kept = self.kept.lock();
        kept.retain(|(opened, _)| opened.elapsed() < KEPT);
        kept.pop()
    }

    fn store_error(&self, failed: &Failed) -> StoreError {
        let text = self.describe_failure(failed);
        if is_lasting(&failed.error) {
            StoreError::Unusable(text)
        } else {
            StoreError::Unavailable(text)
        }
    }

    fn describe_failure(&self, Failed { error, server, .. }: &Failed) -> String {
        let text = match error.kind() {
            // The text would quote the received bytes, which may be another service's response.
            ErrorKind::Parse => "this is not a Redis server".to_owned(),
            _ => {
                let text = error.to_string();
                in_words(&text, &credentials::SETTINGS).unwrap_or(text)
            }
        };
        // The arguments are left out: they are a whole script.
        let (cause, _arguments) = text.split_once(", with args").unwrap_or((&text, ""));
        match server {
            Some(server) => format!("{}: {server}: {cause}", self.redacted),
            None => format!("{}: {cause}", self.redacted),
        }
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>, StoreError> {
        let held: Vec<Option<_>> = self.call(&scripts::read(keys)).await?;
        Ok(held.into_iter().map(|held| held.map(stored)).collect())
    }

    async fn ids(&self, kind: Kind, group: &str) -> Result<Vec<String>, StoreError> {
        self.call(&scripts::ids(kind, group)).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Outcome, StoreError> {
        // Without replicas there is no acknowledgement to wait for.
        if self.replicas == 0 && changes.iter().all(Change::only_compares) {
            return Ok(Outcome::Committed);
        }
        let command = scripts::commit(&changes)
            .map_err(|_| StoreError::Unavailable(format!("{}: no randomness", self.redacted)))?;
        Ok(if self.commit_once(&command).await? {
            Outcome::Committed
        } else {
            Outcome::Conflict
        })
    }

    async fn since(&self, cursor: i64) -> Result<Vec<LogEntry>, StoreError> {
        let texts: Vec<String> = self.call(&scripts::since(cursor)).await?;
        let entries: Option<Vec<_>> = texts.iter().map(|text| log_entry(text)).collect();
        match entries {
            Some(entries) if entries.is_sorted_by(|one, next| one.id < next.id) => Ok(entries),
            // Another program has written there.
            _ => Err(StoreError::Unusable(format!(
                "{} key {}: not a log of revocations",
                self.redacted,
                scripts::log_keys()[0]
            ))),
        }
    }

    async fn now(&self) -> Result<i64, StoreError> {
        let (now, _): (i64, i64) = self.call(&scripts::time()).await?;
        Ok(now)
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.commit(ended_records()).await?;
        // The error stays until it is reported here.
        match self.half_done.lock().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn describe(&self, key: &Key) -> String {
        format!("{} key {}", self.redacted, record_key(key))
    }
}

/// Waits until `replicas` have all writes through `connection`, and the writes before them.
async fn wait_for_replicas(connection: &mut Connection, replicas: u8) -> Result<(), RedisError> {
    if replicas == 0 {
        return Ok(());
    }
    let mut wait = ::redis::cmd("WAIT");
    wait.arg(replicas).arg(ACKNOWLEDGEMENT_MS);
    let held: u8 = connection.query(&wait).await?;
    if held < replicas {
        let text = format!("{held} of {replicas} replicas have acknowledged");
        return Err((ErrorKind::Io, "WAIT", text).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
