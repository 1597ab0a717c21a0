//! Edits of a users file by commands.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::accounts::users::password::tests::cheap;

fn entry(account: &str) -> UserEntry {
    UserEntry {
        account: account.into(),
        password: cheap("p"),
        id: format!("id of {account}"),
        nick_name: Some("N \"quoted\"".into()),
        ..UserEntry::default()
    }
}

fn add(path: &Path, account: &str) -> Result<(), ExitError> {
    edit(&args(path), "", |users| {
        users.push(entry(account));
        Ok(())
    })
}

fn user(path: &Path, account: &str) -> UserAccountArgs {
    UserAccountArgs {
        file: args(path),
        account: account.to_owned(),
    }
}

fn args(path: &Path) -> UsersFileArgs {
    UsersFileArgs {
        users: UsersLocation::File(path.to_owned()),
    }
}

fn accounts(path: &Path) -> Vec<String> {
    let users = UsersDocument::parse(&text(path).unwrap()).unwrap().users;
    users.into_iter().map(|user| user.account).collect()
}

#[test]
fn a_new_file_is_its_owner_s_only_and_an_old_one_keeps_its_mode() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    add(&path, "ada").unwrap();
    assert_eq!((mode(), accounts(&path)), (0o600, vec!["ada".to_owned()]));

    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    add(&path, "bob").unwrap();
    assert_eq!(mode(), 0o400);
    let files = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(files, 2, "the file and its lock");
}

#[test]
fn a_link_stays_one() {
    let directory = tempfile::tempdir().unwrap();
    let (real, link) = ["real.toml", "users.toml"]
        .map(|name| directory.path().join(name))
        .into();
    add(&real, "ada").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    add(&link, "bob").unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(accounts(&real), ["ada", "bob"]);
}

#[test]
fn commands_at_the_same_moment_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let path = &path;
            scope.spawn(move || add(path, &n.to_string()).unwrap());
        }
    });
    assert_eq!(accounts(&path).len(), 8);
}

#[test]
fn users_come_and_go_under_the_heading_and_the_others_stay() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let read = || fs::read_to_string(&path).unwrap();
    let inline = format!(
        "# ours\n\nuser = [{{ account = \"ada\", password = {:?}, id = \"1\" }}]",
        cheap("p")
    );
    let write = |text: &str| {
        owner_only_file::replace(&path, text).unwrap();
    };
    write(&inline);
    add(&path, "bob").unwrap();
    let start = "# ours\n\n[[user]]\naccount = \"ada\"\n";
    assert!(read().starts_with(start), "{}", read());
    edit_user(&user(&path, "bob"), "", |user| user.disabled = true).unwrap();
    let users = UsersDocument::parse(&read()).unwrap().users;
    let bob = UserEntry {
        disabled: true,
        ..entry("bob")
    };
    assert_eq!((users.len(), users.last()), (2, Some(&bob)));
    for account in ["ada", "bob"] {
        remove(&user(&path, account)).unwrap();
    }
    assert_eq!(accounts(&path), [""; 0]);
    assert!(read().contains("user = []"), "an empty file is truncated");
    add(&path, "ada").unwrap();
    assert_eq!(accounts(&path), ["ada"]);
}

#[test]
fn what_would_not_be_a_users_file_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    add(&path, "ada").unwrap();
    let before = fs::read_to_string(&path).unwrap();
    let same_id = |users: &mut Vec<UserEntry>| {
        let id = "id of ada".to_owned();
        users.push(UserEntry { id, ..entry("bob") });
        Ok(())
    };
    let ada = user(&path, "ada");
    for (changed, code) in [
        (add(&path, "ada"), 78),
        (edit(&args(&path), "", same_id), 78),
        (
            edit_user(&ada, "", |user: &mut UserEntry| {
                user.password = "no".to_owned()
            }),
            78,
        ),
        (edit_user(&user(&path, "bob"), "", |_| {}), 64),
        (remove(&user(&path, "bob")), 64),
    ] {
        assert_eq!(changed.unwrap_err().code(), code);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    owner_only_file::replace(&path, "broken").unwrap();
    assert_eq!(add(&path, "bob").unwrap_err().code(), 78);
}

#[test]
fn a_password_is_the_first_line() {
    for (input, password) in [
        ("hush\n", "hush"),
        ("hush", "hush"),
        ("hush\r\nmore\n", "hush"),
        (" hush \n", " hush "),
        ("", ""),
        ("\u{feff}hush\n", "hush"),
        ("\u{feff}", ""),
        ("hush\u{feff}", "hush\u{feff}"),
    ] {
        assert_eq!(first_line(input.as_bytes()).unwrap().as_str(), password);
    }
    for (input, why) in [
        (&b"\xff\xfeh\0u\0\n\0"[..], "is UTF-16"),
        (b"\xfe\xff\0h\0u\0\n", "is UTF-16"),
        (b"h\0u\0\n\0", "is UTF-16"),
        (b"h\xfcsh\n", "is not UTF-8"),
    ] {
        let failure = first_line(input).unwrap_err();
        assert!(failure.to_string().contains(why), "{failure}");
        assert_eq!(failure.code(), 64);
    }
}

#[test]
fn a_password_is_never_cut_off() {
    let longest = "p".repeat(4096);
    for end in ["", "\n", "\r\n", "\r\nmore"] {
        let input = format!("{longest}{end}");
        assert_eq!(*first_line(input.as_bytes()).unwrap(), longest);
        let marked = format!("\u{feff}{input}");
        assert_eq!(*first_line(marked.as_bytes()).unwrap(), longest);
        let failure = first_line(format!("p{input}").as_bytes()).unwrap_err();
        assert!(failure.to_string().contains("longer than 4 KiB"));
        assert_eq!(failure.code(), 64);
    }
}
