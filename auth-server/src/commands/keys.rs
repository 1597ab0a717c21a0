//! `keys …`: changes the store while servers run, which apply it at their next poll.

mod reencrypt;

use std::path::Path;
use std::sync::Arc;

use postern_process::exit::ExitError;
use postern_process::files::secret_file;
use postern_token::keys::signing_type::SigningType;
use postern_token::keys::{KeyId, found_in};
use postern_token::times::moment;

use self::reencrypt::reencrypt;
use super::store::CommandStore;
use super::{actor, print, print_note, print_row};
use crate::cli::{KeyArgs, KeysCommand, KeysRevokeArgs, LeadArgs};
use crate::keys::StoredKeys;
use crate::keys::pair::SigningKeyPair;
use crate::keys::ring::KeyRing;
use crate::keys::update::{Plan, Updated, update};
use crate::store::StoreError;
use crate::telemetry::audit;
use crate::telemetry::audit::events::{KeyEvent, KeyEventKind};

pub(crate) async fn run(command: &KeysCommand) -> Result<(), ExitError> {
    match command {
        KeysCommand::Show(args) => show(args).await,
        KeysCommand::Rotate { keys, lead } => rotate(keys, lead).await,
        KeysCommand::Revoke(args) => revoke(args).await,
        KeysCommand::Import {
            keys,
            private_key_file,
        } => import(keys, private_key_file).await,
        KeysCommand::Reencrypt(args) => reencrypt(args).await,
        KeysCommand::ExportPublic(args) => export_public(args).await,
    }
}

async fn export_public(args: &KeyArgs) -> Result<(), ExitError> {
    let keys = KeysInStore::open(args).await?;
    if keys.signing_type == SigningType::Hmac {
        return Err(ExitError::Usage(
            "--signing-type hmac: a shared secret has no public half; applications fetch it with their secret"
                .to_owned(),
        ));
    }
    print(keys.load().await?.current().public_key_string().trim_end())
}

async fn show(args: &KeyArgs) -> Result<(), ExitError> {
    // The store is closed before the first row: a reader may take its time.
    let ring = KeysInStore::open(args).await?.load().await?;
    for row in ring.rows() {
        print_row(&row)?;
    }
    Ok(())
}

/// Publishes a next key; simultaneous calls result in one key, which all of them print.
async fn rotate(args: &KeyArgs, lead: &LeadArgs) -> Result<(), ExitError> {
    let keys = KeysInStore::open(args).await?;
    rotate_in(&keys, lead.rotation_lead.get().into()).await
}

pub(crate) async fn rotate_in(keys: &KeysInStore, lead: i64) -> Result<(), ExitError> {
    if keys.signing_type == SigningType::Hmac {
        return Err(ExitError::Usage(
            "--signing-type hmac: a shared secret cannot be announced; keys revoke replaces it at once"
                .to_owned(),
        ));
    }
    let before = keys.load().await?;
    let now = keys.store.now().await?;
    let updated = keys
        .update(now, |ring, fresh| match fresh {
            // The next key of another call signs already.
            _ if ring.current() != before.current() => Plan::Keep(ring),
            _ if ring.next().is_some() => Plan::Keep(ring),
            None => Plan::Generate,
            Some(fresh) => Plan::Write(ring.publish(Arc::clone(fresh), now, lead)),
        })
        .await?;
    let ring = &updated.ring;
    let Some(next) = ring.next() else {
        return print(&format!("{} signs already", ring.current().id()));
    };
    let (kid, at) = (next.pair.id(), next.signs_from);
    log_change(&updated, KeyEventKind::Published, kid, Some(at));
    print(&format!("{kid} signs from {}", moment(at)))
}

async fn revoke(args: &KeysRevokeArgs) -> Result<(), ExitError> {
    revoke_in(&KeysInStore::open(&args.keys).await?, &args.kid).await
}

pub(crate) async fn revoke_in(keys: &KeysInStore, kid: &KeyId) -> Result<(), ExitError> {
    let before = keys.load().await?;
    let now = keys.store.now().await?;
    let updated = keys
        .update(now, |ring, fresh| {
            if !ring.is_listed(kid) {
                return Plan::Keep(ring);
            }
            match ring.revoke(kid, fresh, now) {
                Some(ring) => Plan::Write(ring),
                None => Plan::Generate,
            }
        })
        .await?;
    if !before.is_listed(kid) && updated.kept.is_some() {
        if updated.ring.revoked().contains(kid) {
            return print(&format!("{kid} was revoked before"));
        }
        return Err(ExitError::Usage(format!(
            "{kid}: {} holds no key of this id; auth-server keys show lists them",
            keys.store.location
        )));
    }
    log_change(&updated, KeyEventKind::Revoked, kid, None);
    let location = &keys.store.location;
    print_note(&format!(
        "{location} has it, each of its servers one --store-poll-interval later; keys show, after that time, \
         shows if a failover of the store has lost it"
    ));
    print(&format!(
        "{kid} is revoked; {} signs",
        updated.ring.current().id()
    ))
}

/// Installs a pair in a store without one; to install it again is no error.
async fn import(args: &KeyArgs, file: &Path) -> Result<(), ExitError> {
    let KeysInStore {
        store,
        signing_type,
    } = KeysInStore::open(args).await?;
    let text = secret_file::read(file)?;
    let pair = match SigningKeyPair::from_private(signing_type, text.clone()) {
        Ok(pair) => Arc::new(pair),
        Err(error) => {
            return Err(ExitError::Config(format!(
                "--private-key-file {}: {error}, and found {}",
                file.display(),
                found_in(text.as_bytes())
            )));
        }
    };
    let now = store.now().await?;
    let updated = update(&store.opened, (signing_type, now), |stored, _| {
        let unusable = |error| store.opened.unusable_keys(&error);
        if let Some(held) = KeyRing::parse(signing_type, stored).map_err(unusable)? {
            return Ok(Plan::Keep(held));
        }
        let ring = KeyRing::around(Arc::clone(&pair), signing_type, stored).map_err(unusable)?;
        if !ring.revoked().contains(pair.id()) {
            return Ok(Plan::Write(ring));
        }
        Err(StoreError::Unusable(format!(
            "{}: {} was revoked",
            store.location,
            pair.id()
        )))
    });
    let updated = confirm_keys(&store, updated.await?).await?;
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

/// Confirms keys that need no change: the command that wrote them may have had an unclear outcome.
async fn confirm_keys(store: &CommandStore, updated: Updated) -> Result<Updated, ExitError> {
    if let Some(kept) = &updated.kept
        && !store.opened.confirm(kept.checks()).await?
    {
        return Err(StoreError::changed().into());
    }
    Ok(updated)
}

/// Logs a change, unless another command made it first.
fn log_change(updated: &Updated, kind: KeyEventKind, kid: &KeyId, at: Option<i64>) {
    if updated.kept.is_none() {
        let kid = kid.clone();
        audit::key(&KeyEvent { kind, kid, at }, Some(&actor()));
    }
}

pub(crate) struct KeysInStore {
    pub(crate) store: CommandStore,
    pub(crate) signing_type: SigningType,
}

impl KeysInStore {
    pub(super) async fn open(args: &KeyArgs) -> Result<Self, ExitError> {
        let store = CommandStore::open(&args.store).await?;
        let signing_type = match (args.signing_type, &store.pair) {
            (Some(given), _) => given,
            (None, Some(pair)) => SigningKeyPair::type_of(pair).unwrap_or_default(),
            (None, None) => SigningType::default(),
        };
        Ok(Self {
            store,
            signing_type,
        })
    }

    pub(super) async fn load(&self) -> Result<KeyRing, ExitError> {
        Ok(self.parse(&self.store.opened.read_keys().await?.keys)?)
    }

    /// Changes the keys at `now`.
    async fn update(
        &self,
        now: i64,
        decide: impl Fn(KeyRing, Option<&Arc<SigningKeyPair>>) -> Plan,
    ) -> Result<Updated, ExitError> {
        let updated = update(
            &self.store.opened,
            (self.signing_type, now),
            |stored, fresh| Ok(decide(self.parse(stored)?, fresh)),
        );
        confirm_keys(&self.store, updated.await?).await
    }

    fn parse(&self, stored: &StoredKeys) -> Result<KeyRing, StoreError> {
        match KeyRing::parse(self.signing_type, stored) {
            Ok(Some(ring)) => Ok(ring),
            Ok(None) => Err(self.store.no_pair()),
            Err(error) => Err(self.store.opened.unusable_keys(&error)),
        }
    }
}

#[cfg(test)]
mod tests;
