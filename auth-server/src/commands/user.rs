//! `user …`: changes the users file while servers run, which apply it within seconds.

use std::fs::{self, File};
use std::io::{BufRead, ErrorKind};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use postern_process::exit::ExitError;
use postern_process::files::{bounded_read, lock_file, owner_only_file, with_suffix};
use postern_process::signals;
use serde_json::json;
use zeroize::Zeroizing;

use super::{no_randomness, print_note, print_row};
use crate::accounts::grants::FurtherClaims;
use crate::accounts::users::toml_schema::{UserEntry, UsersDocument};
use crate::accounts::users::users_file::{self, Users};
use crate::accounts::users::{UsersLocation, password};
use crate::cli::user::{
    UserAccountArgs, UserAddArgs, UserCommand, UserPasswordArgs, UsersFileArgs,
};
use crate::random;

/// Max length of a password on standard input; longer input is the wrong file.
const MAX_PASSWORD_BYTES: u64 = 4096;
/// The minimum of any password (NIST SP 800-63B, section 3.1.1.2). Where nothing else is verified, 15
/// characters are recommended.
const MIN_PASSWORD_CHARACTERS: usize = 8;
/// Longest wait for the lock, which other commands hold for a few file operations only.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) fn run(command: &UserCommand) -> Result<(), ExitError> {
    match command {
        UserCommand::Add(args) => add(args),
        UserCommand::List(args) => list(args),
        UserCommand::SetPassword { user, password } => set_password(user, password),
        UserCommand::Disable(args) => edit_user(args, "is disabled", |user| user.disabled = true),
        UserCommand::Enable(args) => edit_user(args, "is enabled", |user| user.disabled = false),
        UserCommand::Remove(args) => remove(args),
    }
}

fn add(args: &UserAddArgs) -> Result<(), ExitError> {
    // Wrong claims fail before the operator types a password.
    let claims = FurtherClaims::from_named(&args.claim)
        .map_err(|error| ExitError::Usage(format!("--claim: {error}")))?;
    let there = users(&args.file)?;
    let account = &args.entry.account;
    if there.knows(account) {
        return Err(rejected(account, "this account exists already"));
    }
    let entry = UserEntry {
        password: hash_of_new_password(&args.password, account, &there)?,
        id: match &args.id {
            Some(id) => id.clone(),
            None => random::token_id().map_err(no_randomness)?,
        },
        claims,
        ..args.entry.clone()
    };
    let done = format!("user {account:?} is added, with the id {}", entry.id);
    edit(&args.file, &done, |users| {
        users.push(entry);
        Ok(())
    })
}

fn remove(UserAccountArgs { file, account }: &UserAccountArgs) -> Result<(), ExitError> {
    edit(file, &format!("user {account:?} is removed"), |users| {
        let Some(index) = users.iter().position(|user| user.account == *account) else {
            return Err(rejected(account, NO_ACCOUNT));
        };
        users.remove(index);
        Ok(())
    })
}

fn set_password(args: &UserAccountArgs, password: &UserPasswordArgs) -> Result<(), ExitError> {
    let UserAccountArgs { file, account } = args;
    let there = users(file)?;
    if !there.knows(account) {
        return Err(rejected(account, NO_ACCOUNT));
    }
    let hash = hash_of_new_password(password, account, &there)?;
    edit_user(args, "has the new password", |user| user.password = hash)
}

fn list(args: &UsersFileArgs) -> Result<(), ExitError> {
    let path = path(args)?;
    // A file that a server rejects is listed too: the list shows the wrong user.
    let users = UsersDocument::parse(&text(&path)?)
        .map_err(|error| invalid(&path, &error))?
        .users;
    if !path.exists() {
        print_note(&format!("{}: is not there yet", path.display()));
    } else if users.is_empty() {
        print_note(&format!("{}: holds no user", path.display()));
    }
    for user in users {
        print_row(&json!({
            "account": user.account,
            "id": user.id,
            "enabled": !user.disabled,
            "nickName": user.nick_name.as_ref().unwrap_or(&user.account),
            "scope": user.scope,
            "roles": user.roles,
        }))?;
    }
    Ok(())
}

fn path(args: &UsersFileArgs) -> Result<PathBuf, ExitError> {
    match &args.users {
        UsersLocation::File(path) => Ok(path.clone()),
        UsersLocation::Builtin => Err(ExitError::Usage(
            "--users builtin: the built-in user stands in no file; say --users file:FILE"
                .to_owned(),
        )),
    }
}

fn users(args: &UsersFileArgs) -> Result<Users, ExitError> {
    let path = path(args)?;
    Users::parse(&text(&path)?).map_err(|error| invalid(&path, &error))
}

/// Reads the file; a missing file counts as empty.
fn text(path: &Path) -> Result<Zeroizing<String>, ExitError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Zeroizing::default()),
        // A device or a pipe has length 0 too.
        Ok(metadata) if metadata.is_file() && metadata.len() == 0 => Ok(Zeroizing::default()),
        _ => Ok(users_file::read(path)?),
    }
}

const NO_ACCOUNT: &str = "no such account";

fn rejected(account: &str, why: &str) -> ExitError {
    ExitError::Usage(format!("user {account:?}: {why}"))
}

fn invalid(path: &Path, error: &str) -> ExitError {
    ExitError::Config(format!("{}: {error}", path.display()))
}

/// Reads, changes and replaces the file under its lock, and prints what is `done`.
fn edit(
    args: &UsersFileArgs,
    done: &str,
    change: impl FnOnce(&mut Vec<UserEntry>) -> Result<(), ExitError>,
) -> Result<(), ExitError> {
    // The target of a symbolic link, so that the link stays.
    let configured = path(args)?;
    let path = configured.canonicalize().unwrap_or(configured);
    let _locked = lock(&path)?;
    let former = text(&path)?;
    let mut document = UsersDocument::parse(&former).map_err(|error| invalid(&path, &error))?;
    change(&mut document.users)?;
    let text = to_text(&former, &document)?;
    // What a server would reject is not written.
    Users::parse(&text).map_err(|error| invalid(&path, &error))?;
    owner_only_file::replace_prepared(&path, &text, |new| like_former(new, &path))
        .map_err(|error| file_error(&path, &error))?;
    print_note(&format!(
        "{done} in {}; a running server follows within 4 s",
        path.display()
    ));
    Ok(())
}

fn edit_user(
    UserAccountArgs { file, account }: &UserAccountArgs,
    done: &str,
    change: impl FnOnce(&mut UserEntry),
) -> Result<(), ExitError> {
    edit(file, &format!("user {account:?} {done}"), |users| {
        for user in users {
            if user.account == *account {
                change(user);
                return Ok(());
            }
        }
        Err(rejected(account, NO_ACCOUNT))
    })
}

/// Returns the text of the users; of the former comments those in front of the first user stay.
fn to_text(former: &str, document: &UsersDocument) -> Result<String, ExitError> {
    let is_heading = |line: &&str| line.starts_with('#') || line.trim().is_empty();
    let heading = former.split_inclusive('\n').take_while(is_heading);
    let users = toml::to_string(document)
        .map_err(|error| ExitError::Software(format!("the users as TOML: {error}")))?;
    Ok(heading.collect::<String>() + &users)
}

/// Maps errors: a full disk is not a configuration error.
fn file_error(path: &Path, error: &std::io::Error) -> ExitError {
    let line = format!("{}: {error}", path.display());
    if owner_only_file::is_passing(error) {
        ExitError::Unavailable(line)
    } else {
        ExitError::Config(line)
    }
}

/// Locks `<path>.lock` until it is dropped: any user with read access could lock the directory.
fn lock(path: &Path) -> Result<File, ExitError> {
    let name = with_suffix(path, ".lock");
    let file = lock_file::open(&name).map_err(|error| file_error(&name, &error))?;
    // Made by root, it must be usable by the owner of the users file.
    if let (Ok(users), Ok(lock)) = (fs::metadata(path), file.metadata())
        && users.uid() != lock.uid()
        // With more than one name it may be another file of root's.
        && lock.nlink() == 1
    {
        let _ = fchown(&file, Some(users.uid()), Some(users.gid()));
    }
    lock_file::lock(&file, LOCK_TIMEOUT).map_err(|error| file_error(&name, &error))?;
    Ok(file)
}

/// Copies owner and mode from the former file: the server that reads it may be another user.
fn like_former(new: &File, path: &Path) -> std::io::Result<()> {
    let Ok(former) = fs::metadata(path) else {
        return Ok(());
    };
    fchown(new, Some(former.uid()), Some(former.gid()))?;
    new.set_permissions(former.permissions())
}

/// Hashes a password into a PHC string that costs as much as most of the other passwords.
fn hash_of_new_password(
    args: &UserPasswordArgs,
    account: &str,
    there: &Users,
) -> Result<String, ExitError> {
    let password = new_password(args)?;
    if password.to_lowercase() == account.to_lowercase() {
        return Err(ExitError::Usage("the password is the account".to_owned()));
    }
    password::hash(&password, there.common_params()).map_err(ExitError::Software)
}

fn new_password(args: &UserPasswordArgs) -> Result<Zeroizing<String>, ExitError> {
    let password = if args.password_stdin {
        first_line(std::io::stdin().lock())?
    } else {
        prompt_twice()?
    };
    if password.is_empty() {
        return Err(ExitError::Usage(
            "an empty password cannot log in".to_owned(),
        ));
    }
    if !args.allow_short && password.chars().count() < MIN_PASSWORD_CHARACTERS {
        return Err(ExitError::Usage(format!(
            "the password has fewer than {MIN_PASSWORD_CHARACTERS} characters; --allow-short accepts it"
        )));
    }
    Ok(password)
}

fn first_line(input: impl BufRead) -> Result<Zeroizing<String>, ExitError> {
    bounded_read::first_line_of(input, MAX_PASSWORD_BYTES)
        .map_err(|why| ExitError::Usage(format!("--password-stdin: {why}")))
}

fn prompt_twice() -> Result<Zeroizing<String>, ExitError> {
    // An end by SIGINT would leave the terminal without echo.
    signals::ignore_sigint()?;
    let password = prompt("Password: ")?;
    if prompt("Once more: ")? != password {
        return Err(ExitError::Usage("the two passwords differ".to_owned()));
    }
    Ok(password)
}

fn prompt(text: &str) -> Result<Zeroizing<String>, ExitError> {
    match rpassword::prompt_password(text) {
        Ok(password) => Ok(Zeroizing::new(password)),
        Err(error) => Err(ExitError::Usage(format!(
            "no password was typed ({error}): --password-stdin reads it without a terminal"
        ))),
    }
}

#[cfg(test)]
mod tests;
