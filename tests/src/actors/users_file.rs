//! A file of users, edited with the auth server's own commands, as an operator does.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::actors::process::Finished;
use crate::actors::programs::Program;

/// The file, in a directory of its own.
#[derive(Debug)]
pub struct UsersFile {
    directory: TempDir,
}

impl UsersFile {
    /// Creates the directory, without the file.
    ///
    /// # Panics
    /// When there is no temporary directory.
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// Creates a file with one user.
    pub fn with(account: &str, password: &str) -> Self {
        let file = Self::new();
        file.add(account, password, &[]);
        file
    }

    /// Returns the value for `--users`.
    pub fn location(&self) -> String {
        format!("file:{}", self.path().display())
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("users.toml")
    }

    /// Adds a user.
    pub fn add(&self, account: &str, password: &str, flags: &[&str]) {
        let flags = [flags, &["--password-stdin"]].concat();
        self.command("add", account, &flags, password).says(0, "");
    }

    /// Runs a command that has to succeed; without a password it needs none.
    pub fn done(&self, command: &str, account: &str, password: &str) {
        let flags: &[&str] = match password {
            "" => &[],
            _ => &["--password-stdin"],
        };
        self.command(command, account, flags, password).says(0, "");
    }

    /// Runs `user list`.
    pub fn list(&self) -> Finished {
        Program::AuthServer.run(&["user", "list", "--users", &self.location()])
    }

    /// Runs `user COMMAND --account ACCOUNT`, with a password on its stdin.
    pub fn command(
        &self,
        command: &str,
        account: &str,
        flags: &[&str],
        password: &str,
    ) -> Finished {
        Program::AuthServer
            .command()
            .arguments(["user", command, "--users", &self.location()])
            .arguments(["--account", account])
            .arguments(flags)
            .input(format!("{password}\n"))
            .run()
    }
}

impl Default for UsersFile {
    fn default() -> Self {
        Self::new()
    }
}
