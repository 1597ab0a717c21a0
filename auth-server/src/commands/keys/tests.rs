//! Commands against a file store, several at a time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use async_trait::async_trait;
use tokio::task::JoinSet;

use super::*;
use crate::cli::{Cli, Command};
use crate::keys::StoredKeys;
use crate::keys::pair::tests::pair;
use crate::keys::store::Entry;

const TYPE: SigningType = SigningType::Ecdsa;

struct Installation(tempfile::TempDir);

impl Installation {
    /// Creates a store with a pair, as left by a server.
    async fn new() -> Self {
        let installation = Self(tempfile::tempdir().unwrap());
        let pair = KeyRing::of(Arc::new(pair(TYPE))).to_stored().unwrap();
        let store = installation.keys().store;
        store
            .compare_and_swap(&StoredKeys::default(), &pair)
            .await
            .unwrap();
        installation
    }

    fn command(&self, words: &str) -> KeysCommand {
        let store = format!("file:{}", self.0.path().join("data").display());
        let words = ["auth-server", "keys"].into_iter().chain(words.split(' '));
        let flags = ["--signing-type", "ecdsa", "--store", &store];
        match runtime::command_line::parse_words::<Cli>(words.chain(flags))
            .unwrap()
            .command
        {
            Command::Keys(command) => command,
            other => unreachable!("{other:?}"),
        }
    }

    fn keys(&self) -> KeysInStore {
        match self.command("export-public") {
            KeysCommand::ExportPublic(args) => KeysInStore::open(&args).unwrap(),
            other => unreachable!("{other:?}"),
        }
    }

    async fn run(&self, words: &str) -> Result<(), ExitError> {
        run(&self.command(words)).await
    }

    async fn ring(&self) -> KeyRing {
        self.keys().load().await.unwrap()
    }
}

#[tokio::test]
async fn many_rotations_at_once_publish_one_key() {
    let installation = Installation::new().await;
    let mut racing = JoinSet::new();
    for _ in 0..8 {
        let command = installation.command("rotate --rotation-lead 100");
        racing.spawn(async move { run(&command).await });
    }
    let published = racing.join_all().await;
    assert_eq!(published, vec![Ok(()); 8]);
    let ring = installation.ring().await;
    let signs_in = ring.next().unwrap().signs_from - unix_now();
    assert!((90..=100).contains(&signs_in), "{signs_in}");
    installation.run("rotate").await.unwrap();
    assert_eq!(installation.ring().await, ring);
}

/// A store whose clock is an hour ahead of this machine's.
#[derive(Debug)]
struct HourAhead(Arc<dyn KeyStore>);

const HOUR: i64 = 3_600;

#[async_trait]
impl KeyStore for HourAhead {
    async fn load(&self) -> Result<StoredKeys, StoreError> {
        self.0.load().await
    }

    async fn compare_and_swap(
        &self,
        expected: &StoredKeys,
        new: &StoredKeys,
    ) -> Result<StoredKeys, StoreError> {
        self.0.compare_and_swap(expected, new).await
    }

    async fn now(&self) -> Result<Option<i64>, StoreError> {
        Ok(Some(unix_now() + HOUR))
    }

    fn location(&self, entry: Entry) -> String {
        self.0.location(entry)
    }
}

#[tokio::test]
async fn a_rotation_goes_by_the_clock_of_the_store() {
    let installation = Installation::new().await;
    let keys = installation.keys();
    let store = KeysInStore {
        store: Arc::new(HourAhead(keys.store)),
        ..keys
    };
    let reason = ReasonArgs { reason: None };
    rotate_in(&store, 150, &reason).await.unwrap();
    let signs_in = || async {
        let ring = installation.ring().await;
        ring.next().unwrap().signs_from - unix_now()
    };
    assert!((HOUR + 140..=HOUR + 150).contains(&signs_in().await));
    // Off by an hour by this machine's clock: a rotation with the right one brings it forward.
    let next = installation.ring().await.next().unwrap().pair.clone();
    installation.run("rotate").await.unwrap();
    assert!((140..=150).contains(&signs_in().await));
    assert_eq!(installation.ring().await.next().unwrap().pair, next);
}

#[tokio::test]
async fn a_revoked_key_is_replaced_at_once_and_again_is_no_error() {
    let installation = Installation::new().await;
    let old = installation.ring().await.current().id().clone();
    for _ in 0..2 {
        installation.run(&format!("revoke {old}")).await.unwrap();
        let ring = installation.ring().await;
        assert!(!ring.is_listed(&old) && ring.revoked().contains(&old));
        assert_eq!(ring.verification_keys().count(), 1);
    }
}

#[tokio::test]
async fn who_changed_a_key_and_why_is_recorded_and_printed() {
    let installation = Installation::new().await;
    installation.run("rotate --reason=OPS-7").await.unwrap();
    let ring = installation.ring().await;
    let next = ring.next().unwrap().pair.id().clone();
    let change = ring.changed_by().unwrap().clone();
    assert!(change.by.contains('@'), "{change}");
    assert_eq!(change.reason.as_deref(), Some("OPS-7"));
    // Nothing has changed, so no actor is recorded.
    installation.run("rotate --reason=again").await.unwrap();
    assert_eq!(installation.ring().await, ring);

    let revoke = format!("revoke {next} --reason=stolen");
    installation.run(&revoke).await.unwrap();
    let ring = installation.ring().await;
    let reason = ring.changed_by().unwrap().reason.clone();
    assert_eq!(reason.as_deref(), Some("stolen"));
    let listing = Listing::of(TYPE, &installation.keys().location, &ring);
    let text = listing.to_string();
    let revoked = text.lines().last().unwrap();
    assert!(revoked.starts_with(&format!("{next}  revoked  changed by ")));
    assert!(revoked.ends_with(" (stolen)"), "{revoked}");
    let json = serde_json::to_value(&listing).unwrap();
    assert_eq!(json["revoked"][0], next.as_str());
    assert_eq!(json["changedBy"]["reason"], "stolen");
    let at = json["changedBy"]["at"].as_str().unwrap();
    assert!(at.ends_with('Z'), "{at}");
}

#[tokio::test]
async fn a_revocation_that_the_store_loses_is_no_success() {
    let installation = Installation::new().await;
    let before = installation.ring().await;
    let old = before.current().id().clone();
    let lose = async {
        let store = installation.keys().store;
        let after = loop {
            let stored = store.load().await.unwrap();
            if stored != before.to_stored().unwrap() {
                break stored;
            }
            tokio::task::yield_now().await;
        };
        let older = before.to_stored().unwrap();
        store.compare_and_swap(&after, &older).await.unwrap();
    };
    let command = format!("revoke {old} --wait=1");
    let (revoked, ()) = tokio::join!(installation.run(&command), lose);
    let failure = revoked.unwrap_err();
    assert_eq!(failure.code(), 69);
    assert!(failure.to_string().contains("has lost it"), "{failure}");
    installation.run(&command).await.unwrap();
}

#[tokio::test]
async fn a_revoked_key_from_a_backup_can_be_revoked_again() {
    let installation = Installation::new().await;
    let before = installation.ring().await;
    let old = before.current().id().clone();
    installation.run(&format!("revoke {old}")).await.unwrap();
    let after = installation.ring().await.to_stored().unwrap();
    let restored = StoredKeys {
        pair: before.to_stored().unwrap().pair,
        ..after.clone()
    };
    let store = installation.keys().store;
    store.compare_and_swap(&after, &restored).await.unwrap();
    installation.run(&format!("revoke {old}")).await.unwrap();
    assert!(!installation.ring().await.is_listed(&old));
}

#[tokio::test]
async fn a_missing_key_is_a_wrong_argument_and_no_pair_means_wait() {
    let installation = Installation::new().await;
    let failure = installation.run("revoke unknown").await.unwrap_err();
    assert_eq!(failure.code(), 64);
    let empty = Installation(tempfile::tempdir().unwrap());
    for words in ["show", "show --json", "rotate", "revoke x", "export-public"] {
        assert_eq!(empty.run(words).await.unwrap_err().code(), 69, "{words}");
    }
}

#[tokio::test]
async fn a_shared_secret_is_not_printed_as_a_public_key() {
    let words = [
        "auth-server",
        "keys",
        "export-public",
        "--signing-type=hmac",
    ];
    let Command::Keys(command) = runtime::command_line::parse_words::<Cli>(words)
        .unwrap()
        .command
    else {
        unreachable!("a keys command")
    };
    let failure = run(&command).await.unwrap_err();
    assert_eq!(failure.code(), 64);
    assert!(failure.to_string().contains("no public half"), "{failure}");
}

#[tokio::test]
async fn keys_show_names_every_key_and_no_half() {
    let installation = Installation::new().await;
    installation.run("rotate").await.unwrap();
    let ring = installation.ring().await;
    let ring = ring.advance(
        i64::from(u32::MAX),
        &crate::keys::ring::rotation::RotationPolicy {
            lead: 150,
            keep: 1,
            every: None,
        },
    );
    let listing = Listing::of(TYPE, &installation.keys().location, &ring);
    let (text, json) = (
        listing.to_string(),
        serde_json::to_string(&listing).unwrap(),
    );
    for key in ring.verification_keys() {
        let kid = key.id().as_str();
        assert!(text.contains(kid) && json.contains(kid), "{text}\n{json}");
    }
    assert!(
        text.contains("current  signs since 2106-02-07T06:28:15Z"),
        "{text}"
    );
    assert!(
        json.contains(r#""role":"retired","listedUntil":"2106-02-07T06:28:16Z""#),
        "{json}"
    );
    assert!(!text.contains("BEGIN") && !json.contains("BEGIN"));
}
