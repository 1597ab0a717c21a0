//! Commands against a file store, several at a time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use tokio::task::JoinSet;

use postern_process::clock::unix_now;

use super::*;
use crate::cli::{Cli, Command};
use crate::keys::pair::tests::pair;
use crate::store::conformance::unsteady::Unsteady;
use crate::store::open_store::OpenStore;

const TYPE: SigningType = SigningType::Ecdsa;

struct Installation(tempfile::TempDir);

impl Installation {
    /// Creates a store with a pair, as left by a server.
    async fn new() -> Self {
        let installation = Self(tempfile::tempdir().unwrap());
        let pair = KeyRing::of(Arc::new(pair(TYPE))).to_stored().unwrap();
        let store = installation.keys().await.store.opened;
        let held = store.read_keys().await.unwrap();
        assert_eq!(store.write_keys(&held, &pair).await, Ok(true));
        installation
    }

    fn command(&self, words: &str) -> KeysCommand {
        self.command_of(&format!("{words} --signing-type ecdsa"))
    }

    /// Returns a command without a signing type of its own.
    fn command_of(&self, words: &str) -> KeysCommand {
        let store = format!("file:{}", self.0.path().join("data").display());
        let words = ["auth-server", "keys"].into_iter().chain(words.split(' '));
        let flags = ["--store", &store];
        match postern_process::command_line::parse_words::<Cli>(words.chain(flags))
            .unwrap()
            .command
        {
            Command::Keys(command) => command,
            other => unreachable!("{other:?}"),
        }
    }

    async fn keys(&self) -> KeysInStore {
        match self.command("export-public") {
            KeysCommand::ExportPublic(args) => KeysInStore::open(&args).await.unwrap(),
            other => unreachable!("{other:?}"),
        }
    }

    async fn run(&self, words: &str) -> Result<(), ExitError> {
        run(&self.command(words)).await
    }

    async fn ring(&self) -> KeyRing {
        self.keys().await.load().await.unwrap()
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

#[tokio::test]
async fn a_rotation_goes_by_the_clock_of_the_store() {
    const HOUR: i64 = 3_600;
    let store = Unsteady::new();
    let mut keys = Installation::new().await.keys().await;
    keys.store.opened = OpenStore::unencrypted(Arc::new(Arc::clone(&store)));
    let pair = KeyRing::of(Arc::new(pair(TYPE))).to_stored().unwrap();
    let held = keys.store.opened.read_keys().await.unwrap();
    let written = keys.store.opened.write_keys(&held, &pair).await;
    assert_eq!(written, Ok(true));
    store.set_ahead(HOUR);
    rotate_in(&keys, 150).await.unwrap();
    let ring = keys.load().await.unwrap();
    let signs_in = ring.next().unwrap().signs_from - unix_now();
    assert!((HOUR + 140..=HOUR + 150).contains(&signs_in), "{signs_in}");
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
async fn a_pair_of_another_system_goes_into_a_store_without_one() {
    let installation = Installation(tempfile::tempdir().unwrap());
    let file = |name: &str, text: &str| {
        let path = installation.0.path().join(name);
        ::tests::wire::certificates::write_private(&path, text);
        format!("import --private-key-file {}", path.display())
    };
    let (theirs, other) = (pair(TYPE), pair(TYPE));
    let import = file("theirs", &theirs.stored().private);
    for _ in 0..2 {
        installation.run(&import).await.unwrap();
        assert_eq!(installation.ring().await.current().id(), theirs.id());
    }
    for (name, text, found) in [
        ("other", other.stored().private.as_str(), ""),
        (
            "public",
            theirs.public_key_string(),
            "found PEM of PUBLIC KEY",
        ),
    ] {
        let failure = installation.run(&file(name, text)).await.unwrap_err();
        assert_eq!(failure.code(), 78, "{failure}");
        assert!(failure.to_string().contains(found), "{failure}");
    }
    assert_eq!(installation.ring().await.current().id(), theirs.id());
}

#[tokio::test]
async fn a_missing_key_is_a_wrong_argument_and_no_pair_means_wait() {
    let installation = Installation::new().await;
    let failure = installation.run("revoke unknown").await.unwrap_err();
    assert_eq!(failure.code(), 64);
    let empty = Installation(tempfile::tempdir().unwrap());
    for words in ["show", "rotate", "revoke x", "export-public"] {
        assert_eq!(empty.run(words).await.unwrap_err().code(), 69, "{words}");
    }
}

#[tokio::test]
async fn the_type_of_the_store_counts_unless_another_is_given() {
    let installation = Installation::new().await;
    let kid = installation.ring().await.current().id().clone();
    for words in ["show", "export-public", "rotate", &format!("revoke {kid}")] {
        let ended = run(&installation.command_of(words)).await;
        assert_eq!(ended, Ok(()), "{words}");
        let other = installation.command_of(&format!("{words} --signing-type rsa"));
        assert_eq!(run(&other).await.unwrap_err().code(), 78, "{words}");
    }
    let empty = Installation(tempfile::tempdir().unwrap());
    let failure = run(&empty.command_of("show")).await.unwrap_err();
    assert_eq!(failure.code(), 69, "{failure}");
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
    let output = Value::from(ring.rows()).to_string();
    for key in ring.verification_keys() {
        assert!(output.contains(key.id().as_str()), "{output}");
    }
    for part in [
        r#""role":"current","signsSince":"2106-02-07T06:28:15Z""#,
        r#""listedUntil":"2106-02-07T06:28:16Z","role":"retired""#,
    ] {
        assert!(output.contains(part), "{output}");
    }
    assert!(!output.contains("BEGIN"));
}
