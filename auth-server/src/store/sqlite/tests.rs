//! Failures that only files have.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
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
async fn what_each_mount_opens_to_a_group_is_closed_again() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let file = stored(&data).await;
    let modes = || [&data, &file].map(|path| fs::metadata(path).unwrap().mode() & 0o7777);
    for opened in [[0o2770, 0o660], [0o755, 0o644], [0o777, 0o600]] {
        for (path, mode) in [&data, &file].into_iter().zip(opened) {
            chmod(path, mode);
        }
        let preview = SqliteStore::new(data.clone(), Access::Preview);
        assert!(preview.get(&application("a")).await.unwrap().is_some());
        assert_eq!(modes(), opened, "a preview leaves everything");
        assert!(open(&data).get(&application("a")).await.unwrap().is_some());
        assert!(modes()[0] & 0o022 == 0 && modes()[1] == 0o600, "{opened:?}");
    }
    fs::remove_file(&file).unwrap();
    chmod(&data, 0o2770);
    SqliteStore::for_serving(data.clone(), Duration::ZERO).unwrap();
    assert_eq!(fs::metadata(&data).unwrap().mode() & 0o7777, 0o700);
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
async fn a_backup_is_a_whole_store_of_its_own_and_overwrites_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (data, other) = (home.path().join("data"), home.path().join("other"));
    fs::create_dir(&other).unwrap();
    chmod(&other, 0o700);
    let copy = other.join(FILE);
    let server = SqliteStore::for_serving(data.clone(), Duration::ZERO).unwrap();
    let missing = open(&data).backup(&copy).unwrap_err();
    assert!(matches!(missing, StoreError::Unavailable(_)), "{missing}");
    assert!(!copy.exists());
    assert_eq!(commit(&server).await, Ok(Outcome::Committed));
    assert_eq!(open(&data).backup(&copy), Ok(()));
    assert_eq!(
        fs::metadata(&copy).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let bytes = fs::read(&copy).unwrap();
    let again = open(&data).backup(&copy).unwrap_err();
    assert!(again.to_string().contains("overwrites nothing"), "{again}");
    assert_eq!(fs::read(&copy).unwrap(), bytes);
    assert!(open(&other).get(&application("a")).await.unwrap().is_some());
}

/// The file of the journal of a database.
fn journal(database: &Path) -> PathBuf {
    database.with_extension("db-wal")
}

fn serve(directory: &Path) -> Arc<SqliteStore> {
    SqliteStore::for_serving(directory.to_owned(), Duration::ZERO).unwrap()
}

async fn commit_as(store: &Arc<SqliteStore>, id: &str) -> Result<Outcome, StoreError> {
    store.commit(vec![put(id, None, "1")]).await
}

/// Returns which of these records are there.
async fn held(store: &Arc<SqliteStore>, ids: &[&str]) -> Result<Vec<bool>, StoreError> {
    let keys: Vec<_> = ids.iter().map(|id| application(id)).collect();
    let found = store.read(&keys).await?;
    Ok(found.iter().map(Option::is_some).collect())
}

/// Empties the journal for the last time in a test: what is committed then stays in it.
fn keep_in_journal(store: &Arc<SqliteStore>) {
    let mut opened = store.opened.lock();
    let opened = opened.as_mut().unwrap();
    opened.journal_emptied = Some(Instant::now() + Duration::from_secs(3600));
}

#[tokio::test]
async fn a_journal_is_emptied_before_it_is_long() {
    let home = tempfile::tempdir().unwrap();
    let store = serve(home.path());
    commit_as(&store, "0").await.unwrap();
    keep_in_journal(&store);
    let journal = journal(&home.path().join(FILE));
    let length = || fs::metadata(&journal).unwrap().len();
    for id in 1.. {
        let before = length();
        commit_as(&store, &id.to_string()).await.unwrap();
        assert!(length() < JOURNAL_BYTES, "{}", length());
        if length() < before {
            return;
        }
    }
}

/// A deed of others in `data`, which has a backup and an earlier copy of the database beside it.
type Deed = (
    &'static str,
    fn(data: &Path, database: &Path),
    // The records that the next start finds, or the line that stops it.
    Result<[bool; 2], &'static str>,
);

const DEEDS: [Deed; 11] = [
    (
        "a backup is moved there",
        |data, database| {
            fs::rename(data.join("../backup"), database).unwrap();
        },
        Err(OTHER_JOURNAL),
    ),
    (
        "a backup is copied there",
        |data, database| {
            fs::copy(data.join("../backup"), database).unwrap();
        },
        Err(OTHER_JOURNAL),
    ),
    // It is the database on which the journal was begun.
    (
        "a copy is moved there",
        |data, database| {
            fs::rename(data.join("../copy"), database).unwrap();
        },
        Ok([true, true]),
    ),
    (
        "a copy is copied there",
        |data, database| {
            fs::copy(data.join("../copy"), database).unwrap();
        },
        Ok([true, true]),
    ),
    (
        "it is removed",
        |_, database| {
            fs::remove_file(database).unwrap();
        },
        Err(NO_DATABASE),
    ),
    (
        "it is emptied",
        |_, database| {
            fs::write(database, "").unwrap();
        },
        Err(NO_DATABASE),
    ),
    (
        "it is truncated",
        |_, database| {
            let file = fs::OpenOptions::new().write(true).open(database).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        },
        Err("it is damaged"),
    ),
    (
        "its journal is removed",
        |_, database| {
            fs::remove_file(journal(database)).unwrap();
        },
        Ok([true, true]),
    ),
    (
        "all beside it is removed",
        |_, database| {
            fs::remove_file(journal(database)).unwrap();
            fs::remove_file(database.with_extension("db-shm")).unwrap();
        },
        Ok([true, true]),
    ),
    (
        "the directory is emptied",
        |data, _| {
            for entry in fs::read_dir(data).unwrap() {
                fs::remove_file(entry.unwrap().path()).unwrap();
            }
        },
        Ok([false, false]),
    ),
    (
        "the directory is replaced",
        |data, database| {
            fs::rename(data, data.join("../aside")).unwrap();
            fs::create_dir(data).unwrap();
            chmod(data, 0o700);
            fs::rename(data.join("../backup"), database).unwrap();
        },
        Ok([true, false]),
    ),
];

/// Starts on what is there; returns if it finds the records `kept` and `later`, or the line that stops it.
async fn started_again(data: &Path) -> Result<Vec<bool>, String> {
    let read = held(&serve(data), &["kept", "later"]).await;
    read.map_err(|error| {
        assert!(matches!(error, StoreError::Unusable(_)), "{error}");
        error.to_string()
    })
}

#[tokio::test]
async fn files_that_others_replace_are_used_no_more() {
    for (deed, act, expected) in DEEDS {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        let (store, database) = (serve(&data), data.join(FILE));
        assert_eq!(commit_as(&store, "kept").await, Ok(Outcome::Committed));
        fs::copy(&database, home.path().join("copy")).unwrap();
        chmod(&home.path().join("copy"), 0o600);
        open(&data).backup(&home.path().join("backup")).unwrap();
        keep_in_journal(&store);
        assert_eq!(commit_as(&store, "later").await, Ok(Outcome::Committed));

        act(&data, &database);
        for _ in 0..2 {
            let done = commit_as(&store, "after").await;
            assert!(
                matches!(done, Err(StoreError::Replaced(_))),
                "{deed}: {done:?}"
            );
            let read = store.get(&application("kept")).await;
            assert!(
                matches!(read, Err(StoreError::Replaced(_))),
                "{deed}: {read:?}"
            );
        }
        drop(store);
        let found = started_again(&data).await;
        match expected {
            Ok(records) => assert_eq!(found, Ok(records.to_vec()), "{deed}"),
            Err(line) => {
                let found = found.unwrap_err();
                assert!(
                    found.contains(line) && !found.contains('\n'),
                    "{deed}: {found}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_journal_is_played_only_into_its_own_database() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let (store, database) = (serve(&data), data.join(FILE));
    let copy = |name: &str, from: &Path| {
        fs::copy(from, home.path().join(name)).unwrap();
    };
    let emptied = || {
        let opened = store.opened.lock();
        empty_journal(&opened.as_ref().unwrap().connection).unwrap();
    };
    assert_eq!(commit_as(&store, "kept").await, Ok(Outcome::Committed));
    keep_in_journal(&store);
    open(&data)
        .backup(&home.path().join("earlier backup"))
        .unwrap();
    copy("earlier", &database);
    assert_eq!(commit_as(&store, "second").await, Ok(Outcome::Committed));
    copy("earlier journal", &journal(&database));
    open(&data).backup(&home.path().join("backup")).unwrap();
    emptied();
    store.opened.lock().as_mut().unwrap().files = store.inspect(&data).unwrap();
    copy("own", &database);
    assert_eq!(commit_as(&store, "later").await, Ok(Outcome::Committed));
    copy("journal", &journal(&database));
    let passive = Connection::open(&database).unwrap();
    passive
        .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
        .unwrap();
    copy("played", &database);

    for (left, beside, is_whole) in [
        ("own", "journal", true),
        ("played", "journal", true),
        ("earlier", "earlier journal", true),
        ("own", "earlier journal", true),
        ("earlier", "journal", false),
        ("earlier backup", "journal", false),
        ("backup", "journal", false),
        ("backup", "earlier journal", false),
        ("played", "earlier journal", false),
    ] {
        let restored = home.path().join(format!("{left} beside {beside}"));
        fs::create_dir(&restored).unwrap();
        chmod(&restored, 0o700);
        let database = restored.join(FILE);
        fs::copy(home.path().join(left), &database).unwrap();
        fs::copy(home.path().join(beside), journal(&database)).unwrap();
        chmod(&database, 0o600);
        let files = || [&database, &journal(&database)].map(|path| fs::read(path).unwrap());
        let before = files();
        if !is_whole {
            for access in [Access::Serve, Access::Write, Access::Preview] {
                let store = SqliteStore::new(restored.clone(), access);
                let rejected = commit_as(&store, "new").await;
                let read = store.get(&application("kept")).await.unwrap_err();
                assert!(read.to_string().contains(OTHER_JOURNAL), "{left}: {read}");
                assert!(rejected.is_err(), "{left}: {rejected:?}");
                drop(store);
                assert_eq!(files(), before, "{left}");
            }
            continue;
        }
        let store = serve(&restored);
        let found = held(&store, &["kept", "second"]).await;
        assert_eq!(found, Ok(vec![true, true]), "{left} {beside}");
        drop(store);
        assert!(!journal(&database).exists());
    }
}

#[tokio::test]
async fn a_plain_copy_of_the_database_is_the_store() {
    let home = tempfile::tempdir().unwrap();
    let (data, other) = (home.path().join("data"), home.path().join("other"));
    let store = serve(&data);
    assert_eq!(commit_as(&store, "kept").await, Ok(Outcome::Committed));
    fs::create_dir(&other).unwrap();
    chmod(&other, 0o700);
    fs::copy(data.join(FILE), other.join(FILE)).unwrap();
    assert_eq!(held(&serve(&other), &["kept"]).await, Ok(vec![true]));

    // A command that begins the journal beside the server marks it, and leaves it to the server.
    assert_eq!(
        commit_as(&open(&data), "of a command").await,
        Ok(Outcome::Committed)
    );
    assert_eq!(held(&store, &["of a command"]).await, Ok(vec![true]));
    drop(store);
    let left: Vec<_> = fs::read_dir(&data)
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert_eq!(left, [FILE], "a server that ends leaves one file");
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

#[tokio::test]
async fn a_lock_that_stays_is_waited_for_and_given_up() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    let file = stored(home.path()).await;
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let change = |id| store.commit(vec![put(id, None, "1")]);
    let key = application("a");
    let (first, second, read) = tokio::join!(change("b"), change("c"), store.get(&key));
    for given_up in [first, second] {
        let error = given_up.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        assert!(
            error.to_string().starts_with(&file.display().to_string()),
            "{error}"
        );
    }
    assert!(!matches!(read, Err(StoreError::Unclear(_))), "{read:?}");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(change("b").await, Ok(Outcome::Committed));
    assert_eq!(store.get(&application("c")).await, Ok(None));
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
async fn a_full_store_takes_nothing_and_goes_on_when_there_is_room() {
    let home = tempfile::tempdir().unwrap();
    let store = open(home.path());
    assert_eq!(commit(&store).await, Ok(Outcome::Committed));
    let limit = |pages: i64| {
        let opened = store.opened.lock();
        let connection = &opened.as_ref().unwrap().connection;
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
    };
    limit(1).unwrap();
    let long = "x".repeat(100_000);
    let both = || vec![put("b", None, "1"), put("c", None, &long)];
    let error = store.commit(both()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    assert_eq!(store.get(&application("b")).await, Ok(None));
    limit(10_000).unwrap();
    assert_eq!(store.commit(both()).await, Ok(Outcome::Committed));
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

/// Set in the process that the test below kills: the directory of its store.
const KILLED: &str = "POSTERN_TEST_KILLED";

#[tokio::test]
async fn what_a_killed_process_committed_is_there_and_whole() {
    if let Some(directory) = std::env::var_os(KILLED) {
        commit_until_killed(&open(Path::new(&directory))).await;
    }
    let home = tempfile::tempdir().unwrap();
    let mut committed = 0;
    for round in 0..4 {
        let name = "what_a_killed_process_committed_is_there_and_whole";
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                &format!("store::sqlite::tests::{name}"),
                "--exact",
                "--nocapture",
            ])
            .env(KILLED, home.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let numbers = lines.filter_map(|line| line.unwrap().parse::<u32>().ok());
        let reported = numbers.take(20 + round).last().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        let store = open(home.path());
        let held = store.read(&both()).await.unwrap().into_iter();
        let values: Vec<u32> = held.map(|it| it.unwrap().value.parse().unwrap()).collect();
        assert_eq!(values[0], values[1], "half a commit");
        assert!(values[0] >= reported && values[0] > committed);
        committed = values[0];
    }
}

fn both() -> [Key; 2] {
    ["a", "b"].map(application)
}

/// Counts in two records at once, and prints each number that is stored.
async fn commit_until_killed(store: &Arc<SqliteStore>) {
    loop {
        let held = store.read(&both()).await.unwrap();
        let version = |at: usize| held[at].as_ref().map(|held| &held.version);
        let number = held[0].as_ref().map_or(0, |it| it.value.parse().unwrap()) + 1;
        let text = number.to_string();
        let changes = vec![put("a", version(0), &text), put("b", version(1), &text)];
        assert_eq!(store.commit(changes).await, Ok(Outcome::Committed));
        writeln!(io::stdout(), "{number}").unwrap();
    }
}
