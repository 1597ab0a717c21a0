//! Servers on one store, with different key-encryption keys.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use super::*;
use crate::keys::pair::tests::pair;
use crate::store::at_rest::KeyEncryption;
use crate::store::at_rest::tests::with;
use crate::store::conformance::for_every_store;
use crate::store::conformance::installations::Installation;
use crate::store::conformance::unsteady::Unsteady;

const TYPE: SigningType = SigningType::Ecdsa;

/// One store, opened by servers with different key-encryption keys.
struct Shared(Arc<Unsteady>);

impl Shared {
    fn new() -> Self {
        Self(Unsteady::new())
    }

    fn open(&self, encryption: KeyEncryption) -> OpenStore {
        OpenStore::unencrypted(Arc::new(Arc::clone(&self.0))).with(encryption)
    }

    async fn plant(&self, entry: Entry, text: Option<&str>) {
        self.0.plant(entry.key(), text).await;
    }
}

fn text(text: &str) -> Option<Zeroizing<String>> {
    Some(Zeroizing::new(text.to_owned()))
}

fn fresh(signing_type: SigningType) -> StoredKeys {
    StoredKeys {
        pair: Some(pair(signing_type).stored().clone()),
        ring: text(r#"{"next": "private"}"#),
    }
}

async fn read(store: &OpenStore) -> Result<StoredKeys, StoreError> {
    store.read_keys().await.map(|held| held.keys)
}

async fn install(store: &OpenStore, keys: &StoredKeys) {
    let held = store.read_keys().await.unwrap();
    assert_eq!(store.write_keys(&held, keys).await, Ok(true));
}

#[tokio::test]
async fn in_an_encrypted_store_no_value_in_clear_counts() {
    let strict = || KeyEncryption {
        required: true,
        ..with(1)
    };
    let planted = pair(TYPE).stored().clone();
    for (entry, value, is_strict) in [
        (Entry::Ring, "{}", false),
        (Entry::Private, planted.private.as_str(), false),
        (Entry::Ring, "{}", true),
    ] {
        let shared = Shared::new();
        install(&shared.open(with(1)), &fresh(TYPE)).await;
        shared.plant(entry, Some(value)).await;
        if entry == Entry::Private {
            shared.plant(Entry::Public, Some(&planted.public)).await;
        }
        let encryption = if is_strict { strict() } else { with(1) };
        let error = read(&shared.open(encryption)).await.unwrap_err();
        assert!(error.to_string().starts_with(&entry.key().id), "{error}");
        assert!(error.to_string().contains("not encrypted"), "{error}");
    }
    // Where nothing else is left, only the requirement tells who wrote it.
    let shared = Shared::new();
    shared.plant(Entry::Private, Some(&planted.private)).await;
    shared.plant(Entry::Public, Some(&planted.public)).await;
    assert!(read(&shared.open(strict())).await.is_err());
    assert!(read(&shared.open(with(1))).await.is_ok());
}

#[tokio::test]
async fn an_encrypted_store_does_not_turn_clear_under_a_server() {
    let shared = Shared::new();
    let records = shared.open(with(1));
    install(&records, &fresh(TYPE)).await;
    read(&records).await.unwrap();
    for (entry, value) in [
        (Entry::Private, None),
        (Entry::Public, None),
        (Entry::Ring, Some("{}")),
    ] {
        shared.plant(entry, value).await;
    }
    let error = read(&records).await.unwrap_err();
    assert!(error.to_string().contains("not encrypted"), "{error}");
}

for_every_store!(a_commit_needs_all_values_as_they_were_read);

fn open(installation: &dyn Installation) -> OpenStore {
    OpenStore::unencrypted(installation.open())
}

async fn a_commit_needs_all_values_as_they_were_read(installation: &dyn Installation) {
    let records = open(installation);
    let (first, second) = (fresh(TYPE), fresh(TYPE));
    install(&records, &first).await;
    let held = records.read_keys().await.unwrap();
    for change in [
        StoredKeys {
            pair: second.pair.clone(),
            ..first.clone()
        },
        StoredKeys {
            ring: text("{}"),
            ..first.clone()
        },
    ] {
        install(&records, &change).await;
        assert_eq!(records.write_keys(&held, &second).await, Ok(false));
        assert_eq!(read(&records).await, Ok(change));
        install(&records, &first).await;
    }
}
