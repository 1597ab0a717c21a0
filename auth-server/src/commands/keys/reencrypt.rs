//! `keys reencrypt`: changes the encryption of the store, in clear or with a key, while servers run.
//!
//! Servers follow the change one poll later. So the first run leaves only values that servers write meanwhile
//! in the former state, and the second run leaves none.

use postern_process::exit::ExitError;

use super::{KeysInStore, print, print_note};
use crate::accounts::sessions::records::kept_until;
use crate::cli::KeyArgs;
use crate::keys::records::{ATTEMPTS, keep_changing};
use crate::store::Kind;
use crate::store::at_rest::AtRest;

pub(super) async fn reencrypt(args: &KeyArgs) -> Result<(), ExitError> {
    let keys = KeysInStore::open(args).await?;
    let store = &keys.store;
    let before = store.opened.read_keys().await?.at_rest;
    let encryption = &store.opened.encryption;
    let wanted = encryption.current.as_ref().map(|key| key.id().to_owned());
    let next = match (&before, wanted) {
        (_, None) => AtRest::InClear,
        (AtRest::Encrypted(_), Some(id)) => AtRest::Encrypted(id),
        (_, Some(id)) => AtRest::BeingEncrypted(id),
    };
    keys.turn_into(&next).await?;
    let left = keys.rewrite_records().await?;
    if left > 0 {
        print_note(&format!(
            "{left} records cannot be read, and stay as they are"
        ));
    }
    let reached = match next {
        // Only the second run with the same key knows that every server has read the first state.
        AtRest::BeingEncrypted(id) if before.key() == Some(&id) => {
            let encrypted = AtRest::Encrypted(id);
            keys.turn_into(&encrypted).await?;
            encrypted
        }
        other => other,
    };
    let state = match reached {
        AtRest::InClear => "in clear".to_owned(),
        AtRest::BeingEncrypted(id) => format!("being encrypted with the key-encryption key {id}"),
        AtRest::Encrypted(id) => format!("encrypted with the key-encryption key {id}"),
    };
    print(&format!("{} is {state}", store.location))?;
    // Printed after an interrupted run too: servers may not have read the new state since.
    if before.key() != encryption.at_rest().key() || matches!(before, AtRest::BeingEncrypted(_)) {
        print_note(
            "run this once more when every server has read the store: one --store-poll-interval later",
        );
    }
    Ok(())
}

impl KeysInStore {
    /// Writes the keys again, and with them the new state of the store.
    async fn turn_into(&self, at_rest: &AtRest) -> Result<(), ExitError> {
        let is_unfinished = matches!(at_rest, AtRest::BeingEncrypted(_));
        for _ in 0..ATTEMPTS {
            let held = self.store.opened.read_keys().await?;
            let new = self
                .parse(&held.keys)?
                .being_encrypted(is_unfinished, self.store.now().await?)
                .to_stored()?;
            // A server may rotate the keys meanwhile: read and write them again.
            if self.store.opened.rewrite_keys(at_rest, &held, &new).await? {
                return Ok(());
            }
        }
        Err(keep_changing().into())
    }

    /// Writes every other record again, and returns the number of records that cannot be read. Records of
    /// statements stay as they are: they end by themselves, and the log knows most of what they hold.
    async fn rewrite_records(&self) -> Result<usize, ExitError> {
        let records = &self.store.opened;
        let mut left = records.rewrite(Kind::Session, kept_until).await?;
        for kind in [Kind::Application, Kind::Users] {
            left += records.rewrite(kind, |_| Ok(None)).await?;
        }
        Ok(left)
    }
}
