//! `auth-server check` reads the store as `serve` does: it ends with the same exit code, and
//! changes nothing there.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use tests::actors::auth_server::{AuthServerPlan, file_store};
use tests::actors::file_store::{self, PRIVATE, PUBLIC, RING};
use tests::actors::process::{CommandLine, Finished};
use tests::actors::programs::Program;
use tests::actors::users_file::UsersFile;
use tests::services::redis_server::{PUBLIC_KEY, Redis};

const DATABASE: &str = "store.db";
const RSA: &[&str] = &[];
const ECDSA: &[&str] = &["--signing-type", "ecdsa"];
const HMAC: &[&str] = &["--signing-type", "hmac"];

/// The name and the flags of a store in a state, the exit code of a server that starts with it – 0: it serves –
/// and the way there.
type Row = (&'static str, &'static [&'static str], i32, fn(&Path));

const ROWS: [Row; 20] = [
    ("no directory", RSA, 0, |_| {}),
    ("a deep one", RSA, 0, |data| {
        fs::create_dir_all(data.parent().unwrap()).unwrap();
    }),
    ("empty", ECDSA, 0, make),
    ("its own keys", RSA, 0, served),
    ("keys of another type", ECDSA, 78, served),
    ("keys of another type, hmac", HMAC, 78, served),
    ("hmac, no application", HMAC, 78, make),
    ("a file", RSA, 78, |data| fs::write(data, "").unwrap()),
    ("below a file", RSA, 78, |data| {
        fs::write(data.parent().unwrap(), "").unwrap();
    }),
    ("of another user", RSA, 78, |data| {
        make(data);
        // Where this is no root, the next row has the same reason.
        let given = std::os::unix::fs::chown(data, Some(65_534), None);
        given.unwrap_or_else(|_| {
            fs::remove_dir(data)
                .and_then(|()| fs::write(data, ""))
                .unwrap()
        });
    }),
    ("open to others", RSA, 0, |data| {
        served(data);
        chmod(data, 0o777);
    }),
    ("a database open to others", RSA, 0, |data| {
        served(data);
        chmod(&data.join(DATABASE), 0o644);
    }),
    ("halves of two pairs", RSA, 78, |data| {
        served(data);
        let other = data.with_extension("other");
        served(&other);
        let half = file_store::value(&other, PUBLIC).unwrap();
        file_store::put(data, PUBLIC, &half);
    }),
    ("no key", RSA, 78, |data| {
        served(data);
        file_store::put(data, PRIVATE, "no key");
    }),
    ("one half", RSA, 0, |data| {
        served(data);
        file_store::remove(data, PUBLIC);
    }),
    ("a broken ring", RSA, 78, |data| {
        served(data);
        file_store::put(data, RING, "{");
    }),
    ("a database of another program", RSA, 78, |data| {
        make(data);
        write(&data.join(DATABASE), "no database");
    }),
    ("a database that is a directory", RSA, 78, |data| {
        make(data);
        fs::create_dir(data.join(DATABASE)).unwrap();
    }),
    ("a database that is a pipe", RSA, 78, |data| {
        make(data);
        let path = data.join(DATABASE);
        let made = CommandLine::new("mkfifo").arguments([path]).run();
        assert_eq!(made.code, Some(0), "{}", made.stderr);
    }),
    ("a database that is a link", RSA, 78, |data| {
        make(data);
        symlink(data.with_extension("elsewhere"), data.join(DATABASE)).unwrap();
    }),
];

fn make(data: &Path) {
    fs::create_dir_all(data).unwrap();
    chmod(data, 0o700);
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    chmod(path, 0o600);
}

/// Leaves a store as a server does that has made its keys there.
fn served(data: &Path) {
    make(data);
    drop(AuthServerPlan::new().directory(data).ready());
}

fn check(store: &str, flags: &[&str]) -> Finished {
    Program::AuthServer
        .command()
        .arguments(["check", "--store", store])
        .arguments(flags)
        .run()
}

/// Returns the exit code of a start; 0 for a server that becomes ready.
fn serve(store: &str, flags: &[&str], code: i32) -> i32 {
    let plan = AuthServerPlan::new().store(store).flags(flags);
    if code == 0 {
        drop(plan.ready());
        return 0;
    }
    plan.fails().code.unwrap()
}

type Seen = BTreeMap<String, (u32, u64, i64, Vec<u8>)>;

/// Returns everything below `directory`: modes, inodes, times of change and contents.
fn seen(directory: &Path) -> Seen {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        // Memory that the readers of a database share.
        if path.ends_with("store.db-shm") {
            continue;
        }
        // Its owner, and the mode of an empty one, are set again by each reader.
        let is_log = path.ends_with("store.db-wal");
        let of = fs::symlink_metadata(&path).unwrap();
        let content = match of.is_file() {
            true => fs::read(&path).unwrap(),
            false => Vec::new(),
        };
        if of.is_dir() {
            all.extend(seen(&path));
        }
        let (mode, changed) = match is_log {
            true => (0, 0),
            false => (of.mode(), of.ctime_nsec()),
        };
        let facts = (mode, of.ino(), changed, content);
        all.insert(path.display().to_string(), facts);
    }
    all
}

#[test]
fn check_ends_as_serve_would_and_leaves_the_store_alone() {
    for (name, flags, code, prepare) in ROWS {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join(match name {
            "a deep one" => "is/made/later",
            "below a file" => "file/data",
            _ => "data",
        });
        prepare(&data);
        let store = file_store(&data);
        let before = seen(home.path());
        let end = check(&store, flags);
        assert_eq!(seen(home.path()), before, "{name}: nothing is changed");
        assert_eq!(end.code, Some(code), "check, {name}: {}", end.stderr);
        assert_eq!(end.stdout.is_empty(), code != 0, "{name}: {}", end.stdout);
        assert!(!end.stderr.contains("BEGIN"), "{name}: {}", end.stderr);
        assert_eq!(serve(&store, flags, code), code, "serve, {name}");
        assert!(
            !data.with_extension("elsewhere").exists(),
            "a link was followed"
        );
    }
}

#[test]
fn check_counts_the_applications_of_a_directory_with_hmac() {
    let home = tempfile::tempdir().unwrap();
    let mounted = home.path().join("applications");
    fs::create_dir(&mounted).unwrap();
    let store = file_store(&home.path().join("data"));
    let flags = [HMAC, &["--applications-dir", mounted.to_str().unwrap()]].concat();
    for code in [78, 0] {
        let end = check(&store, &flags);
        assert_eq!(end.code, Some(code), "{}", end.stderr);
        assert_eq!(serve(&store, &flags, code), code);
        write(&mounted.join("orders"), &"s".repeat(43));
    }
}

#[test]
fn check_warns_of_a_store_that_is_away() {
    let store = "redis://127.0.0.1:1";
    let users = UsersFile::with("ada", "correct horse");
    let users = ["--users", &users.location()];
    let end = check(store, &users);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let warning = "--store: redis://127.0.0.1:1: ";
    let line = format!("# warning: {warning}");
    assert_eq!(end.stdout.matches(&line).count(), 1, "{}", end.stdout);
    let strict = [&users[..], &["--strict"]].concat();
    let end = check(store, &strict);
    end.says(78, warning);
    let home = tempfile::tempdir().unwrap();
    let end = check(&file_store(&home.path().join("data")), &strict);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    // It serves 503 until the store is there.
    drop(AuthServerPlan::new().store(store).start());
}

#[test]
fn check_reads_redis_and_writes_nothing_there() {
    let Some(redis) = Redis::start() else { return };
    let checked = |flags: &[&str], code| {
        let before = redis.command(&["DBSIZE"]);
        let end = check(&redis.url(), flags);
        assert_eq!(end.code, Some(code), "{}", end.stderr);
        assert_eq!(redis.command(&["DBSIZE"]), before);
        assert_eq!(serve(&redis.url(), flags, code), code);
    };
    checked(HMAC, 78);
    checked(RSA, 0);
    checked(ECDSA, 78);
    redis.command(&["SET", PUBLIC_KEY, "no key"]);
    checked(RSA, 78);
    redis.command(&["DEL", PUBLIC_KEY]);
    redis.command(&["LPUSH", PUBLIC_KEY, "a list"]);
    checked(RSA, 78);
}
