//! Files that others replace, journals, processes that are killed.

use super::*;

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
                &format!("store::sqlite::tests::journal::{name}"),
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
