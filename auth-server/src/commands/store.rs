//! `store …`: commands for the store as a whole, and the store as other commands use it.

use postern_process::exit::ExitError;

use super::{actor, print, print_note};
use crate::cli::store::{StoreArgs, StoreCommand};
use crate::config::store_location;
use crate::keys::StoredKeyPair;
use crate::revocations::Revocation;
use crate::revocations::log::RevocationLog;
use crate::store::directory::Access;
use crate::store::location::StoreLocation;
use crate::store::open_store::OpenStore;
use crate::store::{Change, Outcome, StoreError};
use crate::telemetry::metrics::Metrics;

pub(crate) fn run(command: &StoreCommand) -> Result<(), ExitError> {
    let StoreCommand::Backup { file, store } = command;
    let location = store_location(store)?;
    location.backup(file)?;
    print(&format!("{location} is copied to {}", file.display()))
}

/// The store of a command, opened.
pub(crate) struct CommandStore {
    pub(crate) location: StoreLocation,
    pub(crate) opened: OpenStore,
    /// `None` before the first start of a server: there are no tokens either.
    pub(crate) pair: Option<StoredKeyPair>,
}

impl CommandStore {
    /// Opens the store, and reads the state of its encryption, by which other records are read.
    pub(crate) async fn open(args: &StoreArgs) -> Result<Self, ExitError> {
        let location = store_location(args)?;
        let opened = location.open(Access::Write)?;
        Ok(Self {
            pair: opened.read_keys().await?.keys.pair,
            location,
            opened,
        })
    }

    /// Appends a revocation, together with another change, as a server does, and logs it. Called after
    /// [`now`](Self::now), which measures the clock that the number of the entry follows.
    pub(crate) async fn append(
        &self,
        revocation: &Revocation,
        change: Option<Change>,
    ) -> Result<Outcome, ExitError> {
        let log = self.log();
        let append = async |revocation: &Revocation, changes| {
            let revocations = std::slice::from_ref(revocation);
            log.append_by(Some(&actor()), &self.opened, revocations, changes)
                .await
        };
        let outcome = append(revocation, change.into_iter().collect()).await?;
        // A server that had not read it may have renewed a session in the seconds of the commit.
        if outcome == Outcome::Committed
            && let Some(later) = revocation.moved_to(self.opened.clock.now())
        {
            append(&later, Vec::new()).await?;
        }
        Ok(outcome)
    }

    /// Returns the log of revocations, which nothing is read of yet.
    pub(crate) fn log(&self) -> RevocationLog {
        RevocationLog::new(self.opened.clone(), Metrics::default(), 0)
    }

    /// Returns the store's time: the operator's clock may be wrong.
    pub(crate) async fn now(&self) -> Result<i64, ExitError> {
        let clock = &self.opened.clock;
        clock.measure(&*self.opened.call().await?).await?;
        if clock.is_noticeable() {
            let (seconds, side) = match clock.skew_seconds() {
                ahead @ 0.. => (ahead, "ahead of"),
                behind => (behind.saturating_neg(), "behind"),
            };
            print_note(&format!(
                "this machine's clock is {seconds} s {side} the store's, which counts"
            ));
        }
        Ok(clock.now())
    }

    pub(crate) fn no_pair(&self) -> StoreError {
        StoreError::Unavailable(format!(
            "{} holds no key pair yet: the first start of auth-server serve makes it",
            self.location
        ))
    }
}
