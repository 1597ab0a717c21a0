#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use zeroize::Zeroizing;

use super::super::conformance::installations::{Files, Installation};
use super::super::file::FileStore;
use super::*;
use crate::keys::pair::generation::generate;
use crate::store::envelope_encryption::tests::{key, with};

/// One store, opened by servers with different key-encryption keys.
struct Directory(Files);

impl Directory {
    fn new() -> Self {
        Self(Files::new())
    }

    fn open(&self, encryption: KeyEncryption) -> EncryptedStore {
        EncryptedStore::new(self.files(), Arc::new(encryption))
    }

    fn files(&self) -> Arc<dyn KeyStore> {
        Arc::new(FileStore::new(self.0.directory()))
    }

    /// Returns the stored strings.
    async fn raw(&self) -> StoredKeys {
        self.files().load().await.unwrap()
    }

    async fn raw_pair(&self) -> StoredKeyPair {
        self.raw().await.pair.unwrap()
    }
}

fn fresh(signing_type: SigningType) -> StoredKeys {
    StoredKeys {
        pair: Some(generate(signing_type).unwrap()),
        ring: Some(StoredRing(Zeroizing::new(
            r#"{"next": "private"}"#.to_owned(),
        ))),
    }
}

async fn install(store: &EncryptedStore, keys: &StoredKeys) {
    let swapped = store.compare_and_swap(&StoredKeys::default(), keys).await;
    assert_eq!(swapped.as_ref(), Ok(keys));
}

fn is_encrypted(text: &str) -> bool {
    text.starts_with("postern-encrypted:1:")
}

#[tokio::test]
async fn every_private_value_is_encrypted_and_a_public_half_is_not() {
    for signing_type in SigningType::ALL {
        let directory = Directory::new();
        let keys = fresh(signing_type);
        install(&directory.open(with(1)), &keys).await;
        let raw = directory.raw().await;
        let pair = raw.pair.unwrap();
        assert!(is_encrypted(&pair.private), "{signing_type}");
        // In hmac mode both names hold the same secret.
        let is_secret = signing_type == SigningType::Hmac;
        assert_eq!(is_encrypted(&pair.public), is_secret, "{signing_type}");
        assert!(is_encrypted(&raw.ring.unwrap().0), "{signing_type}");
        assert_eq!(directory.open(with(1)).load().await, Ok(keys));
    }
}

#[tokio::test]
async fn without_the_right_key_nothing_is_read_or_overwritten() {
    let directory = Directory::new();
    install(&directory.open(with(1)), &fresh(SigningType::Ecdsa)).await;
    let before = directory.raw().await;
    for encryption in [KeyEncryption::default(), with(2)] {
        let store = directory.open(encryption);
        let swap = store
            .compare_and_swap(&StoredKeys::default(), &fresh(SigningType::Ecdsa))
            .await;
        for error in [store.load().await.unwrap_err(), swap.unwrap_err()] {
            assert!(matches!(&error, StoreError::Unusable(_)), "{error}");
            assert!(error.to_string().contains("key-encryption key"), "{error}");
        }
    }
    assert_eq!(directory.raw().await, before);
}

#[tokio::test]
async fn plain_keys_are_read_and_encrypted_at_the_next_write() {
    for signing_type in SigningType::ALL {
        let directory = Directory::new();
        let keys = fresh(signing_type);
        install(&directory.open(KeyEncryption::default()), &keys).await;
        assert_eq!(directory.raw().await, keys);

        let store = directory.open(with(1));
        assert_eq!(store.load().await, Ok(keys.clone()));
        assert_eq!(directory.raw().await, keys, "a read changes nothing");
        let rewritten = store.compare_and_swap(&keys, &keys).await;
        assert_eq!(rewritten, Ok(keys.clone()));
        assert!(is_encrypted(&directory.raw_pair().await.private));
        assert_eq!(store.load().await, Ok(keys));
    }
}

#[tokio::test]
async fn the_key_encryption_key_rotates_with_the_previous_one_at_hand() {
    let directory = Directory::new();
    let keys = fresh(SigningType::Ecdsa);
    install(&directory.open(with(1)), &keys).await;
    // Servers that read both keys, whichever they write with.
    let prepared = KeyEncryption {
        previous: Some(key(2)),
        ..with(1)
    };
    let rotated = KeyEncryption {
        previous: Some(key(1)),
        ..with(2)
    };
    let (prepared, rotated) = (directory.open(prepared), directory.open(rotated));
    assert_eq!(rotated.load().await, Ok(keys.clone()));
    assert_eq!(
        rotated.compare_and_swap(&keys, &keys).await,
        Ok(keys.clone())
    );
    assert_eq!(prepared.load().await, Ok(keys.clone()));
    assert_eq!(directory.open(with(2)).load().await, Ok(keys));
    assert!(directory.open(with(1)).load().await.is_err());
}

#[tokio::test]
async fn a_value_that_was_moved_to_another_slot_or_key_is_rejected() {
    let (directory, other) = (Directory::new(), Directory::new());
    install(&directory.open(with(1)), &fresh(SigningType::Ecdsa)).await;
    install(&other.open(with(1)), &fresh(SigningType::Ecdsa)).await;
    let (mine, theirs) = (directory.raw_pair().await, other.raw_pair().await);
    let ring = directory.raw().await.ring.unwrap().0;
    for (private, public) in [
        // Another key's private half, correctly encrypted.
        (&theirs.private, &mine.public),
        (&mine.private, &theirs.public),
        (&mine.private, &mine.private),
        (&ring, &mine.public),
    ] {
        directory.0.plant(Entry::Half(Half::Private), private).await;
        directory.0.plant(Entry::Half(Half::Public), public).await;
        let error = directory.open(with(1)).load().await.unwrap_err();
        assert!(
            error.to_string().contains("another place or key"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn where_encryption_is_required_no_key_in_clear_is_accepted() {
    let directory = Directory::new();
    let keys = fresh(SigningType::Ecdsa);
    let strict = || KeyEncryption {
        required: true,
        ..with(1)
    };
    install(&directory.open(strict()), &keys).await;
    assert_eq!(directory.open(strict()).load().await, Ok(keys));

    directory.0.plant(Entry::Ring, "{}").await;
    let ring = directory.open(strict()).load().await.unwrap_err();
    assert!(
        ring.to_string().contains("--require-encrypted-keys"),
        "{ring}"
    );
    directory.0.lose(Entry::Ring).await;
    let planted = generate(SigningType::Ecdsa).unwrap();
    directory
        .0
        .plant(Entry::Half(Half::Private), &planted.private)
        .await;
    directory
        .0
        .plant(Entry::Half(Half::Public), &planted.public)
        .await;
    assert!(directory.open(strict()).load().await.is_err());
    assert!(directory.open(with(1)).load().await.is_ok());
}

#[tokio::test]
async fn servers_with_and_without_the_new_key_agree_on_one_winner() {
    let directory = Directory::new();
    let (a, b) = (fresh(SigningType::Ecdsa), fresh(SigningType::Ecdsa));
    let (one, two) = (directory.open(with(1)), directory.open(with(1)));
    install(&one, &a).await;
    let adopted = two.compare_and_swap(&StoredKeys::default(), &b).await;
    assert_eq!(adopted, Ok(a.clone()), "adopts the winner");
    // Re-encrypted by one between a read and a swap of the other: still the same keys.
    assert_eq!(two.load().await, Ok(a.clone()));
    assert_eq!(one.compare_and_swap(&a, &a).await, Ok(a.clone()));
    assert_eq!(two.compare_and_swap(&a, &b).await, Ok(b.clone()));
    assert_eq!(one.load().await, Ok(b));
}
