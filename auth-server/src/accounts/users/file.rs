//! Users of a file in memory, with reload.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use postern_contract::login::LoginRequest;
use postern_process::clock::instant;
use postern_process::files::{owner_only_file, replaced_file};

use super::users_file::{self, Users, digest_of};
use super::{PresentUser, UserStore};

/// The users who can log in: each id with the digest of the credentials.
pub(super) type EnabledUsers = BTreeMap<String, String>;

#[derive(Debug)]
pub(crate) struct FileUsers {
    path: PathBuf,
    loaded: ArcSwap<Loaded>,
}

#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) users: Arc<Users>,
    /// Digest of the users who can log in.
    pub(super) enabled: String,
    pub(super) since: Instant,
}

impl FileUsers {
    /// Reads the file.
    ///
    /// # Errors
    /// One line that names the file.
    pub(crate) fn open(path: PathBuf) -> Result<Self, String> {
        let text = users_file::read(&path).map_err(|error| error.to_string())?;
        let loaded = Loaded::now(parse(&path, &text)?);
        Ok(Self {
            path,
            loaded: ArcSwap::from_pointee(loaded),
        })
    }

    /// Reads the file again; a text that is in use is not parsed.
    ///
    /// # Errors
    /// One line that names the file.
    pub(super) fn read(&self) -> Result<Arc<Users>, String> {
        let text = users_file::read(&self.path).map_err(|error| error.to_string())?;
        let loaded = self.loaded.load();
        // Most polls read the text that is in use: its users are parsed already.
        if loaded.users.are_of(&text) {
            return Ok(Arc::clone(&loaded.users));
        }
        parse(&self.path, &text)
    }

    /// Uses these users from now on, and returns the changed accounts; `None` for the users in use.
    pub(super) fn replace(&self, users: Arc<Users>) -> Option<Vec<String>> {
        // The text decides, not the time of the file: an editor may have written the same text.
        let former = self.loaded();
        if former.users == users {
            return None;
        }
        self.loaded.store(Arc::new(Loaded::now(Arc::clone(&users))));
        Some(changed(&former.users, &users))
    }

    pub(super) fn loaded(&self) -> Arc<Loaded> {
        self.loaded.load_full()
    }

    /// Removes the files that a killed command has left, which may hold hashes.
    pub(crate) fn remove_unfinished(&self) {
        if let Ok(path) = self.path.canonicalize() {
            // `canonicalize`: commands write beside the file itself, not beside a link to it.
            let _ = owner_only_file::remove_unfinished(&path);
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn count(&self) -> usize {
        self.loaded.load().users.len()
    }

    /// Returns warnings that name the file.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let users = &self.loaded.load().users;
        let mut warnings = Vec::new();
        warnings.extend(users.cost_warning());
        warnings.extend(users.letter_case_warning());
        for warning in &mut warnings {
            *warning = format!("--users file:{}: {warning}", self.path.display());
        }
        warnings
    }
}

impl Loaded {
    fn now(users: Arc<Users>) -> Self {
        let enabled = serde_json::to_string(&enabled(&users)).unwrap_or_default();
        Self {
            users,
            enabled: digest_of(&enabled),
            since: instant(),
        }
    }

    pub(super) fn enabled(&self) -> EnabledUsers {
        enabled(&self.users)
    }

    /// Returns the users who can log in.
    pub(super) fn present(&self) -> impl Iterator<Item = PresentUser> {
        present(&self.users)
    }
}

fn parse(path: &Path, text: &str) -> Result<Arc<Users>, String> {
    match Users::parse(text) {
        Ok(users) => Ok(Arc::new(users)),
        Err(cause) => Err(format!("{}: {cause}", path.display())),
    }
}

/// Lists the accounts that are new, gone or changed between two files, in order.
fn changed(before: &Users, after: &Users) -> Vec<String> {
    let mut accounts: BTreeSet<_> = before.accounts().chain(after.accounts()).collect();
    accounts.retain(|account| before.known(account) != after.known(account));
    accounts.into_iter().cloned().collect()
}

/// Lists the ids of the users who could log in before and cannot any more, or only with another
/// password.
pub(super) fn ended(before: &EnabledUsers, after: &EnabledUsers) -> Vec<String> {
    let mut ended = Vec::new();
    for (id, credentials) in before {
        if after.get(id) != Some(credentials) {
            ended.push(id.clone());
        }
    }
    ended
}

fn enabled(users: &Users) -> EnabledUsers {
    present(users)
        .map(|it| (it.user.id, it.credentials))
        .collect()
}

/// Returns the users who can log in.
fn present(users: &Users) -> impl Iterator<Item = PresentUser> {
    users.accounts().filter_map(|it| users.present(it))
}

impl UserStore for FileUsers {
    fn authenticate(&self, request: &LoginRequest) -> Option<PresentUser> {
        // A clone, not a guard: a check is slow, and a reload meanwhile must not wait for it.
        self.loaded
            .load_full()
            .users
            .authenticate(&request.username, &request.password)
    }

    fn present(&self, account: &str) -> Option<PresentUser> {
        self.loaded.load().users.present(account)
    }

    fn is_user(&self, name: &str) -> bool {
        self.loaded.load().users.is_user(name)
    }

    fn is_current(&self) -> bool {
        !replaced_file::is_replaced(&self.path)
    }

    fn checks_passwords(&self) -> bool {
        true
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::super::users_file::tests::entry;
    use super::*;

    /// Writes a file with these accounts, whose passwords are `<account>'s`.
    pub(crate) fn file_with(accounts: &[&str]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        write(&file, accounts);
        file
    }

    pub(crate) fn write(file: &tempfile::NamedTempFile, accounts: &[&str]) {
        let entries: String = accounts
            .iter()
            .map(|account| entry(account, &format!("{account}'s")))
            .collect();
        fs::write(file.path(), format!("# users\n{entries}")).unwrap();
    }

    impl FileUsers {
        /// Uses what the file holds.
        pub(crate) fn reload(&self) -> Result<Option<Vec<String>>, String> {
            self.read().map(|users| self.replace(users))
        }
    }

    fn knows(users: &FileUsers, account: &str) -> bool {
        let request = LoginRequest {
            username: account.into(),
            password: format!("{account}'s"),
        };
        users.authenticate(&request).is_some()
    }

    #[test]
    fn each_change_names_its_user() {
        let file = file_with(&["ada", "bob"]);
        let users = FileUsers::open(file.path().to_owned()).unwrap();
        let first = fs::read_to_string(file.path()).unwrap();
        let disabled = format!("{first}disabled = true\n");
        let renamed = format!("{first}nickName = \"Bob L.\"\n");
        let other_password = format!("{}{}", entry("ada", "ada's"), entry("bob", "other"));
        for text in [disabled, first, renamed, other_password] {
            fs::write(file.path(), &text).unwrap();
            assert_eq!(users.reload().unwrap().unwrap(), ["bob"], "{text}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_used_leaves_the_users_as_they_are() {
        let file = file_with(&["ada"]);
        let users = FileUsers::open(file.path().to_owned()).unwrap();
        for broken in ["", "[[user]]\naccount", "\u{0}"] {
            fs::write(file.path(), broken).unwrap();
            let line = users.reload().unwrap_err().to_string();
            assert!(line.contains(&file.path().display().to_string()), "{line}");
            assert!(knows(&users, "ada"), "{broken:?}");
        }
        write(&file, &["ada"]);
        fs::set_permissions(file.path(), Permissions::from_mode(0o644)).unwrap();
        assert!(users.reload().is_err(), "others may read it");
        fs::remove_file(file.path()).unwrap();
        assert!(users.reload().is_err());
        assert!(knows(&users, "ada"));
    }
}
