//! `keys …`: changes the store while servers run, which apply it at their next poll.

mod listing;
mod reencrypt;

use std::sync::Arc;

use runtime::files::secret_file;
use runtime::process::exit::ExitError;
use wire::explain::report::moment;
use wire::keys::KeyId;
use wire::keys::signing_type::SigningType;

use self::listing::{as_json, as_text};
use self::reencrypt::reencrypt;
use super::{actor, print, print_note};
use crate::audit;
use crate::audit::events::{KeyEvent, KeyEventKind};
use crate::cli::store::StoreArgs;
use crate::cli::{
    KeyArgs, KeysCommand, KeysImportArgs, KeysRevokeArgs, KeysRotateArgs, KeysShowArgs,
};
use crate::config::store_location;
use crate::keys::StoredKeys;
use crate::keys::pair::SigningKeyPair;
use crate::keys::records::KeyRecords;
use crate::keys::ring::KeyRing;
use crate::keys::update::{Plan, Updated, update};
use crate::revocations::entry::Fact;
use crate::revocations::{Revocation, log_revocations};
use crate::sessions::records::SessionRecords;
use crate::store::clock::StoreClock;
use crate::store::location::StoreLocation;
use crate::store::{Change, Outcome, StoreError};

pub(crate) async fn run(command: &KeysCommand) -> Result<(), ExitError> {
    match command {
        KeysCommand::Show(args) => show(args).await,
        KeysCommand::Rotate(args) => rotate(args).await,
        KeysCommand::Revoke(args) => revoke(args).await,
        KeysCommand::Import(args) => import(args).await,
        KeysCommand::Reencrypt(args) => reencrypt(args).await,
        KeysCommand::ExportPublic(args) => export_public(args).await,
    }
}

async fn export_public(args: &KeyArgs) -> Result<(), ExitError> {
    if args.signing.signing_type == SigningType::Hmac {
        return Err(ExitError::Usage(
            "--signing-type hmac: a shared secret has no public half; applications fetch it with their secret"
                .to_owned(),
        ));
    }
    let ring = KeysInStore::open(args)?.load().await?;
    print(ring.current().public_key_string().trim_end())
}

async fn show(args: &KeysShowArgs) -> Result<(), ExitError> {
    let store = KeysInStore::open(&args.keys)?;
    let ring = store.load().await?;
    let (of_type, location) = (store.signing_type, &store.location);
    print(&match args.json {
        true => format!("{:#}", as_json(of_type, location, &ring)),
        false => as_text(of_type, location, &ring),
    })
}

/// Publishes a next key; simultaneous calls result in one key, which all of them print.
async fn rotate(args: &KeysRotateArgs) -> Result<(), ExitError> {
    let store = KeysInStore::open(&args.keys)?;
    rotate_in(&store, args.lead.rotation_lead.get().into()).await
}

async fn rotate_in(store: &KeysInStore, lead: i64) -> Result<(), ExitError> {
    if store.signing_type == SigningType::Hmac {
        return Err(ExitError::Usage(
            "--signing-type hmac: a shared secret cannot be announced; keys revoke replaces it at once"
                .to_owned(),
        ));
    }
    let before = store.load().await?;
    let now = store.now().await?;
    let updated = store
        .update(now, |ring, fresh| match fresh {
            // Another call's next key signs already.
            _ if ring.current() != before.current() => Plan::Keep(ring),
            _ if ring.next().is_some() => Plan::Keep(ring),
            None => Plan::Generate,
            Some(fresh) => Plan::Write(ring.publish(Arc::clone(fresh), now, lead)),
        })
        .await?;
    if let Some(next) = updated.ring.next() {
        let signs_from = Some(next.signs_from);
        log_change(
            &updated,
            KeyEventKind::Published,
            next.pair.id(),
            signs_from,
        );
    }
    let ring = updated.ring;
    print(&match ring.next() {
        Some(next) => format!("{} signs from {}", next.pair.id(), moment(next.signs_from)),
        None => format!("{} signs already", ring.current().id()),
    })
}

async fn revoke(args: &KeysRevokeArgs) -> Result<(), ExitError> {
    let (store, kid) = (KeysInStore::open(&args.keys)?, &args.kid);
    let before = store.load().await?;
    if !before.is_listed(kid) {
        return already_gone(kid, &before, &store.location);
    }
    let now = store.now().await?;
    let updated = store
        .update(now, |ring, fresh| {
            if !ring.is_listed(kid) {
                return Plan::Keep(ring);
            }
            let revoked = ring.revoke(kid, fresh, now);
            revoked.map_or(Plan::Generate, Plan::Write)
        })
        .await?;
    log_change(&updated, KeyEventKind::Revoked, kid, None);
    let current = updated.ring.current().id();
    print_note(
        "the store has it, every server one --store-poll-interval later; keys show, after that time, shows if a \
         failover of the store has lost it",
    );
    print(&format!("{kid} is revoked; {current} signs"))
}

/// Installs a pair in a store without one; again is no error.
async fn import(args: &KeysImportArgs) -> Result<(), ExitError> {
    let store = KeysInStore::open(&args.keys)?;
    let (signing_type, file) = (store.signing_type, &args.private_key_file);
    let pair = SigningKeyPair::of_private(signing_type, secret_file::read(file)?);
    let pair = pair.map(Arc::new).map_err(|error| {
        ExitError::Config(format!("--private-key-file {}: {error}", file.display()))
    })?;
    let now = store.now().await?;
    let updated = update(&store.keys, (signing_type, now), |stored, _| {
        let imported = || KeyRing::around(Arc::clone(&pair), signing_type, stored);
        let plan = match KeyRing::parse(signing_type, stored) {
            Ok(Some(held)) => Ok(Plan::Keep(held)),
            Ok(None) => imported().map(Plan::Write),
            Err(error) => Err(error),
        };
        plan.map_err(|error| store.keys.unusable(&error))
    });
    let updated = updated.await?;
    log_change(&updated, KeyEventKind::Adopted, pair.id(), None);
    let current = updated.ring.current().id().clone();
    if current != *pair.id() {
        return Err(ExitError::Config(format!(
            "{} holds the key {current} already: import goes before the first start",
            store.location
        )));
    }
    print(&format!("{current} signs"))
}

fn already_gone(kid: &KeyId, ring: &KeyRing, location: &StoreLocation) -> Result<(), ExitError> {
    if ring.revoked().contains(kid) {
        return print(&format!("{kid} was revoked before"));
    }
    Err(ExitError::Usage(format!(
        "{kid}: {location} holds no key of this id; auth-server keys show lists them"
    )))
}

/// Logs a change, unless another command made it first.
fn log_change(updated: &Updated, kind: KeyEventKind, kid: &KeyId, at: Option<i64>) {
    if updated.is_written {
        let kid = kid.clone();
        audit::key(&KeyEvent { kind, kid, at }, Some(&actor()));
    }
}

pub(super) struct KeysInStore {
    location: StoreLocation,
    keys: KeyRecords,
    signing_type: SigningType,
}

impl KeysInStore {
    pub(super) fn open(args: &KeyArgs) -> Result<Self, ExitError> {
        let location = store_location(&args.store)?;
        Ok(Self::at(location, args.signing.signing_type)?)
    }

    fn at(location: StoreLocation, signing_type: SigningType) -> Result<Self, StoreError> {
        Ok(Self {
            keys: location.keys(&location.open()?),
            location,
            signing_type,
        })
    }

    /// Opens a store whose pair shows its signing type.
    pub(super) async fn of_its_type(args: &StoreArgs) -> Result<Self, ExitError> {
        let store = Self::at(store_location(args)?, SigningType::default())?;
        let pair = store.keys.read().await?.keys.pair;
        Ok(Self {
            signing_type: pair.map_or_else(SigningType::default, |pair| pair.signing_type()),
            ..store
        })
    }

    pub(super) async fn holds_pair(&self) -> Result<bool, ExitError> {
        Ok(self.keys.read().await?.keys.pair.is_some())
    }

    pub(super) async fn load(&self) -> Result<KeyRing, ExitError> {
        let held = self.keys.read().await?;
        Ok(self.parse(&held.keys)?)
    }

    pub(super) fn sessions(&self) -> SessionRecords {
        SessionRecords::new(Arc::clone(self.keys.store()), self.location.encryption())
    }

    /// Appends a revocation, together with another change, and logs it. Its number is above all numbers
    /// before this time, so that sidecars go on with the list of an older copy.
    pub(super) async fn append(
        &self,
        revocation: &Revocation,
        change: Option<Change>,
        now: i64,
    ) -> Result<Outcome, ExitError> {
        let append = Fact::of(revocation, now).append(revocation.ends, now);
        let append = append
            .ok_or_else(|| ExitError::Software("a revocation cannot be written".to_owned()))?;
        let changes = change.into_iter().chain([append]).collect();
        let outcome = self.keys.store().commit(changes).await?;
        if outcome == Outcome::Committed {
            log_revocations(std::slice::from_ref(revocation), Some(&actor()));
        }
        Ok(outcome)
    }

    /// Returns the store's time: the operator's clock may be wrong.
    pub(super) async fn now(&self) -> Result<i64, ExitError> {
        let clock = StoreClock::default();
        clock.measure(&**self.keys.store()).await?;
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

    /// Changes the keys at `now`.
    pub(super) async fn update(
        &self,
        now: i64,
        decide: impl Fn(KeyRing, Option<&Arc<SigningKeyPair>>) -> Plan,
    ) -> Result<Updated, ExitError> {
        let updated = update(&self.keys, (self.signing_type, now), |stored, fresh| {
            Ok(decide(self.parse(stored)?, fresh))
        });
        Ok(updated.await?)
    }

    fn parse(&self, stored: &StoredKeys) -> Result<KeyRing, StoreError> {
        KeyRing::parse(self.signing_type, stored)
            .map_err(|error| self.keys.unusable(&error))?
            .ok_or_else(|| {
                StoreError::Unavailable(format!(
                    "{} holds no key pair yet: the first start of auth-server serve makes it",
                    self.location
                ))
            })
    }
}

#[cfg(test)]
mod tests;
