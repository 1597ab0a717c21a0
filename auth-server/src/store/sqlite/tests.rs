//! Failures that only files have.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod journal;

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rusqlite::OpenFlags;
use rustix::process::geteuid;

use super::super::conformance::{application, put};
use super::database::empty_journal;
use super::files::{NO_DATABASE, OTHER_JOURNAL};
use super::*;

fn open(directory: &Path) -> Arc<SqliteStore> {
    SqliteStore::new(directory.to_owned(), Access::Write)
}

async fn commit(store: &Arc<SqliteStore>) -> Result<Outcome, StoreError> {
    store.commit(vec![put("a", None, "1")]).await
}

/// Leaves a store with one record, and returns its file.
async fn stored(directory: &Path) -> PathBuf {
    assert_eq!(commit(&open(directory)).await, Ok(Outcome::Committed));
    directory.join(FILE)
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn no_byte_of_a_former_value_stays_in_the_file() {
    let home = tempfile::tempdir().unwrap();
    let store = open(&home.path().join("data"));
    // Within a page, and longer than a page.
    for length in [40, 40_000] {
        let secret = "hush".repeat(length / 4);
        for value in [&*secret, "1"] {
            let held = store.get(&application("a")).await.unwrap();
            let change = put("a", held.as_ref().map(|held| &held.version), value);
            assert_eq!(store.commit(vec![change]).await, Ok(Outcome::Committed));
        }
        let file = home.path().join("data").join(FILE);
        empty_journal(&Connection::open(&file).unwrap()).unwrap();
        let bytes = fs::read(&file).unwrap();
        let found = bytes.windows(8).any(|part| part == b"hushhush");
        assert!(!found, "{length} bytes");
    }
}

#[tokio::test]
async fn a_store_full_of_sessions_takes_statements_of_other_issuers() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    let file = stored(home.path()).await;
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
        INSERT INTO record SELECT 'session', i, '', 0, unixepoch() + 1000 FROM n";
    Connection::open(&file)
        .unwrap()
        .execute_batch(fill)
        .unwrap();
    let put = |kind| Change::Put {
        key: Key {
            kind,
            id: "new".to_owned(),
        },
        expected: None,
        value: Zeroizing::new(String::new()),
        ends: Some(i64::MAX),
    };
    let statement = store.commit(vec![put(Kind::Statement)]).await;
    assert_eq!(statement, Ok(Outcome::Committed));
    let session = store.commit(vec![put(Kind::Session)]).await.unwrap_err();
    assert!(
        session.to_string().contains("with an end already"),
        "{session}"
    );
}

#[tokio::test]
async fn what_is_no_store_of_this_version_is_unusable_and_stays() {
    let home = tempfile::tempdir().unwrap();
    let good = fs::read(stored(&home.path().join("good")).await).unwrap();
    let foreign = home.path().join("foreign.db");
    let made = Connection::open(&foreign).unwrap();
    made.execute_batch("CREATE TABLE theirs (id)").unwrap();
    drop(made);
    let mut newer = good.clone();
    newer[60..64].copy_from_slice(&2_i32.to_be_bytes());
    for (case, bytes) in [
        ("text", b"not a database at all".to_vec()),
        ("truncated", good[..good.len() / 2].to_vec()),
        ("start alone", good[..50].to_vec()),
        ("foreign", fs::read(&foreign).unwrap()),
        ("newer", newer),
    ] {
        let held = home.path().join(case);
        fs::create_dir(&held).unwrap();
        chmod(&held, 0o700);
        fs::write(held.join(FILE), &bytes).unwrap();
        chmod(&held.join(FILE), 0o600);
        for access in [Access::Preview, Access::Write] {
            let store = SqliteStore::new(held.clone(), access);
            let read = store.ids(Kind::Application, "").await.map(drop);
            for failed in [read, commit(&store).await.map(drop)] {
                let error = failed.unwrap_err();
                assert!(matches!(error, StoreError::Unusable(_)), "{case}: {error}");
                assert!(!error.to_string().contains('\n'), "{case}: {error}");
                assert_eq!(fs::read(held.join(FILE)).unwrap(), bytes, "{case}");
            }
        }
    }
}

#[tokio::test]
async fn what_others_could_have_made_is_unusable() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let file = stored(&data).await;
    let rejected = async || {
        let error = open(&data).get(&application("a")).await.unwrap_err();
        assert!(matches!(error, StoreError::Unusable(_)), "{error}");
        error.to_string()
    };
    if geteuid().is_root() {
        for path in [&file, &data] {
            std::os::unix::fs::chown(path, Some(7), None).unwrap();
            let line = rejected().await;
            assert!(line.contains("chown") && !line.contains("chmod"), "{line}");
            std::os::unix::fs::chown(path, Some(0), None).unwrap();
        }
    }
    let elsewhere = home.path().join("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    rejected().await;
}

#[tokio::test]
async fn the_directory_may_be_behind_a_symbolic_link() {
    let home = tempfile::tempdir().unwrap();
    let (there, link) = (home.path().join("there"), home.path().join("link"));
    fs::create_dir(&there).unwrap();
    symlink(&there, &link).unwrap();
    assert_eq!(
        commit(&open(&link.join("data"))).await,
        Ok(Outcome::Committed)
    );
}

#[test]
fn a_store_that_another_process_is_making_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join(FILE);
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut made = database::open(&file, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    let making = thread::spawn(move || prepare(&mut made));
    thread::sleep(Duration::from_millis(100));
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(making.join().unwrap(), Ok(()));
}

#[tokio::test]
async fn records_with_an_end_are_counted_in_the_store() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    let ending = async |id: &str| {
        let put = Change::Put {
            key: application(id),
            expected: None,
            value: Zeroizing::default(),
            ends: Some(unix_now() + 1000),
        };
        store.commit(vec![put]).await
    };
    let sql = |text: &str| {
        let opened = store.opened.lock();
        opened.as_ref().unwrap().connection.execute_batch(text)
    };
    assert_eq!(ending("a").await, Ok(Outcome::Committed));
    // A full disk takes no place for good.
    sql(
        "PRAGMA max_page_count = 1; CREATE TEMP TRIGGER full BEFORE INSERT ON record
         BEGIN SELECT RAISE(ABORT, 'full'); END",
    )
    .unwrap();
    for number in 0..300 {
        assert!(ending(&number.to_string()).await.is_err());
    }
    sql("DROP TRIGGER full; PRAGMA max_page_count = 100000").unwrap();
    assert_eq!(ending("b").await, Ok(Outcome::Committed));
    sql("WITH RECURSIVE number(it) AS (SELECT 3 UNION ALL SELECT it + 1 FROM number WHERE it < 100000)
         INSERT INTO record SELECT 'session', it, '', it, 99999999999 FROM number")
    .unwrap();
    let mut taken = 0;
    while ending(&format!("later {taken}")).await.is_ok() {
        taken += 1;
    }
    assert!(taken <= 256, "{taken}");
    let error = ending("more").await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    assert_eq!(commit(&open(home.path())).await, Ok(Outcome::Conflict));
    sql("DELETE FROM record WHERE kind = 'session'").unwrap();
    assert_eq!(ending("more").await, Ok(Outcome::Committed));
}
