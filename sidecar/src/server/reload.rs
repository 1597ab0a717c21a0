//! Applies a changed configuration while the program runs: at SIGHUP, and when one of its files
//! changes.
//!
//! The whole configuration is read and checked as at a start, and applied only if all of it is
//! valid. Changed settings that are not reloadable are logged, and wait for the next start.

pub(crate) mod file_states;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use postern_process::clock::unix_now;
use postern_process::command_line;
use postern_process::exit::ExitError;
use postern_process::files::file_watch::PolledFiles;
use postern_process::files::replaced_file;
use postern_transport::admin::health::Condition;
use tokio::task::spawn_blocking;

use self::file_states::{FileStates, paths_of, state_of, states_of};
use crate::cli::issuer_table::IssuerTable;
use crate::cli::log_args::AccessLogArgs;
use crate::cli::{Cli, Command, ServeArgs};
use crate::config::Config;
use crate::exchange::app::App;
use crate::issuers::task::Changes;
use crate::server::reminder::Reminder;
use crate::telemetry::metrics::{APPLIED, REJECTED, WAITING};

/// The parts of the program that a reload changes.
#[derive(Debug)]
pub(crate) struct Reload {
    /// The settings at the start of the process.
    pub(crate) start: ServeArgs,
    /// The states of the files of `start`, before they were read.
    pub(crate) files: FileStates,
    pub(crate) app: Arc<App>,
    pub(crate) issuers: Changes,
    /// The readiness condition that notes the last reload.
    pub(crate) condition: Condition,
}

impl Reload {
    /// Reloads at SIGHUP and after changes.
    pub(crate) async fn run(self) -> Result<Infallible, String> {
        let mut files =
            PolledFiles::start(self.files.clone()).map_err(|error| error.to_string())?;
        let mut effective = self.start.clone();
        let mut paths = paths_of(&effective);
        let mut reminder = Reminder::default();
        loop {
            self.remind(&mut reminder);
            let polled = paths.clone();
            if let Some(states) = files.poll(move || states_of(polled)).await.cloned() {
                // The settings that were read may name other files.
                let states = self.reload(&mut effective, states).await;
                paths = states.keys().cloned().collect();
                files.restart(states);
            }
        }
    }

    fn remind(&self, reminder: &mut Reminder) {
        let now = unix_now();
        let until = self.app.rules.load().auth_policy.report_only_until(now);
        if let Some(notice) = reminder.due(until, now) {
            notice.log();
        }
    }

    /// Reloads once; `effective` holds the settings in effect, before and after. Returns the files to poll
    /// from now on.
    async fn reload(&self, effective: &mut ServeArgs, polled: FileStates) -> FileStates {
        let (start, former, files) = (self.start.clone(), effective.clone(), polled.clone());
        // All that reads files or can fail comes first, on a thread of its own.
        let reading = spawn_blocking(move || Reading::new(&start, &former, files));
        let reading = reading.await.unwrap_or_else(|error| Reading {
            named: BTreeSet::new(),
            files: polled,
            checked: Err(ExitError::Software(error.to_string())),
        });
        let (mut named, mut files) = (reading.named, reading.files);
        let outcome = match reading.checked {
            Ok(reloaded) => self.put_in_force(reloaded, effective),
            Err(error) => Err(error.to_string()),
        };
        self.report(&outcome);
        // Files of rejected or waiting settings are polled too: one of them may not be there yet.
        named.extend(paths_of(effective));
        for (path, _) in files.extract_if(.., |path, _| !named.contains(path)) {
            replaced_file::forget(&path);
        }
        files
    }

    /// Reports the end of a reload: in the log, on `/readyz`, in metrics.
    fn report(&self, outcome: &Result<Applied, String>) {
        let metrics = &self.app.metrics;
        let rejected = outcome.as_ref().err().map(String::as_str);
        self.condition.reloaded(rejected);
        let (changed, waiting) = match outcome {
            Ok(Applied { changed, waiting }) => (changed.as_str(), waiting.as_str()),
            Err(error) => {
                tracing::error!(%error, "the configuration is not usable: keeping the previous one");
                return metrics.config_reloaded(REJECTED);
            }
        };
        let outcome = match (changed, waiting) {
            ("", "") => {
                tracing::info!(
                    "configuration applied again: no setting has changed, \
                     but the content of a file may have"
                );
                APPLIED
            }
            ("", _) => {
                self.condition.add_note("nothing new is in force");
                WAITING
            }
            _ => {
                tracing::info!(changed, "configuration reloaded");
                APPLIED
            }
        };
        let needs_restart = !waiting.is_empty();
        if needs_restart {
            self.condition
                .add_note(&format!("these take effect at the next start: {waiting}"));
            tracing::warn!(
                settings = waiting,
                "these settings take effect at the next start"
            );
        }
        metrics.config_reloaded(outcome);
        metrics.config_restart_needed.set(needs_restart.into());
    }

    /// Puts the settings in force. Only the certificates can be rejected; they come first, so that a
    /// rejection changes nothing.
    fn put_in_force(&self, new: Reloaded, effective: &mut ServeArgs) -> Result<Applied, String> {
        let config = new.config;
        self.app.upstream.set_tls(config.upstream.tls.clone())?;
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        // Before the rules are in force: each rule has its series before its first rejection.
        self.app
            .metrics
            .expect_rules(config.rules.auth_policy.rule_names());
        self.app.rules.replace(config.rules);
        for (issuer, settings) in self.issuers.iter().zip(config.issuers) {
            // The send fails only for a task that has ended, which stops the process.
            let _ = issuer.send(settings);
        }
        let changed = differences(effective, &new.now).join(", ");
        *effective = new.now;
        let waiting = new.waiting.join(", ");
        Ok(Applied { changed, waiting })
    }
}

/// The names of the settings that a reload has changed, and of those that wait for the next start.
struct Applied {
    changed: String,
    waiting: String,
}

/// The settings of a reload.
struct Reading {
    /// The files that they name; none if they cannot be read.
    named: BTreeSet<PathBuf>,
    /// The polled and the named files, with their states before the check.
    files: FileStates,
    checked: Result<Reloaded, ExitError>,
}

impl Reading {
    /// Reads the settings, and checks them unless a file changes meanwhile.
    fn new(start: &ServeArgs, effective: &ServeArgs, mut files: FileStates) -> Self {
        let (named, checked) = match read_settings() {
            Err(error) => (BTreeSet::new(), Err(error)),
            Ok(read) => {
                let named = paths_of(&read);
                // Before the check reads them, so that a later change of a new one is noticed.
                for path in &named {
                    files.entry(path.clone()).or_insert_with(|| state_of(path));
                }
                (named, check(start, effective, &read))
            }
        };
        let is_same = files.iter().all(|(path, state)| *state == state_of(path));
        let checked = match checked {
            Err(error) => Err(command_line::with_sources::<Cli>(error)),
            Ok(checked) if is_same => Ok(checked),
            // What was checked may be half of a change that is still being written.
            Ok(_) => Err(ExitError::Config("a file has changed again".to_owned())),
        };
        Self {
            named,
            files,
            checked,
        }
    }
}

/// The settings after a reload.
struct Reloaded {
    config: Config,
    /// The settings in effect, of which `config` is made.
    now: ServeArgs,
    /// The names of the settings that wait for the next start.
    waiting: Vec<String>,
}

/// Returns the settings after a reload that has `read` these.
fn check(
    start: &ServeArgs,
    effective: &ServeArgs,
    read: &ServeArgs,
) -> Result<Reloaded, ExitError> {
    // Invalid settings are rejected whole, even where they wait: the next start would fail.
    let mut config = Config::new(read)?;
    let now = apply_reloadable(start, effective, read);
    let waiting = differences(&now, read);
    // Until the next start other settings are in effect than those that were read: these need a check of their
    // own, because the new rules meet the former values of what waits.
    if !waiting.is_empty() {
        config = Config::new(&now).map_err(|error| {
            let waiting = waiting.join(", ");
            ExitError::Config(format!(
                "without {waiting}, which wait for the next start: {error}"
            ))
        })?;
    }
    Ok(Reloaded {
        config,
        now,
        waiting,
    })
}

/// Reads the settings: flag > variable > file, as at the start. Only the file can have changed.
fn read_settings() -> Result<ServeArgs, ExitError> {
    match command_line::reread::<Cli>()?.command {
        Command::Serve(args) => Ok(*args),
        _ => Err(ExitError::Software("the command is not serve".to_owned())),
    }
}

/// Returns the settings in effect after `read`: rules, tables and certificates towards the service change
/// together. They stay as in `effective` while the service or the sources of keys for which they are made
/// wait for the next start; all other settings stay as in `start`.
fn apply_reloadable(start: &ServeArgs, effective: &ServeArgs, read: &ServeArgs) -> ServeArgs {
    // The settings for which rules, tables and certificates are made; they change only at a start.
    let made_for = |args: &ServeArgs| {
        let tables = args.issuers.iter().map(IssuerTable::about_keys);
        let keys = &args.keys;
        (
            [&keys.auth_server, &keys.jwks].map(Clone::clone),
            keys.issuer_url.clone(),
            tables.collect::<Vec<_>>(),
            args.service.upstream.clone(),
        )
    };
    if made_for(start) != made_for(read) {
        return effective.clone();
    }
    ServeArgs {
        rules: read.rules.clone(),
        issuers: read.issuers.clone(),
        upstream: read.upstream.clone(),
        access: AccessLogArgs {
            access_log: read.access.access_log,
            access_log_user: read.access.access_log_user,
            ..start.access.clone()
        },
        ..start.clone()
    }
}

/// Returns the names of the settings that differ. Only a setting that the serializer knows may wait for the next
/// start: any other would be applied by a reload.
fn differences(one: &ServeArgs, other: &ServeArgs) -> Vec<String> {
    // Settings that were read from a table can be written as one.
    let table = |args: &ServeArgs| args.to_table().unwrap_or_default();
    let (one, other) = (table(one), table(other));
    one.keys()
        .chain(other.keys())
        .collect::<BTreeSet<&String>>()
        .into_iter()
        .filter(|name| one.get(*name) != other.get(*name))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn args(more: &[&str]) -> ServeArgs {
        let line = [&["sidecar", "serve"], more].concat();
        match command_line::parse_words::<Cli>(line).unwrap().command {
            Command::Serve(args) => *args,
            other => unreachable!("{other:?}"),
        }
    }

    const AUTH_SERVER: [&str; 6] = [
        "--auth-server",
        "http://127.0.0.1:1/auth",
        "--app-id",
        "orders",
        "--app-secret",
        "hush",
    ];

    /// Returns the applied and the waiting settings, when the second settings follow the first.
    fn reloaded(start: &[&str], read: &[&str]) -> (Vec<String>, Vec<String>) {
        let (start, read) = (args(start), args(read));
        let now = apply_reloadable(&start, &start, &read);
        (differences(&start, &now), differences(&now, &read))
    }

    const AT_ONCE: &str = "--public-path=/a/** --optional-auth-path=/a/** --cors-origin=https://app.example \
        --issuer=auth --audience=orders --audience=orders,stock --leeway=5 --accept-bound-tokens=on \
        --app-name=shop --user-header=X-User --user-header-encoding=base64url --claim-header=X-User-Id=sub \
        --forwarded=overwrite --forward-authorization=false --token-cookie=session --upstream-ca=/ca \
        --upstream-server-name=orders --access-log=all --access-log-user=id";
    const WAITING: &str = "--listen=127.0.0.1:1 --admin-listen=127.0.0.1:1 --upstream=http://127.0.0.1:1 \
        --threads=2 --request-id --key-cache=/keys --max-key-age=1 --auth-ca=/ca";

    #[test]
    fn rules_change_at_once_and_the_rest_waits_by_name() {
        let name = |flag: &str| vec![flag.trim_start_matches('-').to_owned()];
        for flag in AT_ONCE.split_whitespace() {
            let read = [&AUTH_SERVER[..], &[flag]].concat();
            let expected = (name(flag.split('=').next().unwrap()), Vec::new());
            assert_eq!(reloaded(&AUTH_SERVER, &read), expected, "{flag}");
        }
        for flag in WAITING.split_whitespace() {
            let read = [&AUTH_SERVER[..], &[flag]].concat();
            let expected = (Vec::new(), name(flag.split('=').next().unwrap()));
            assert_eq!(reloaded(&AUTH_SERVER, &read), expected, "{flag}");
        }
        let other = AUTH_SERVER.map(|word| word.replace("orders", "shop"));
        let other = other.each_ref().map(String::as_str);
        let expected = (Vec::new(), name("app-id"));
        assert_eq!(reloaded(&AUTH_SERVER, &other), expected);
    }

    #[test]
    fn settings_that_belong_together_wait_together() {
        let issuer = |url: &'static str, issuer: &'static str, header: &'static str| {
            [
                "--jwks",
                url,
                "--issuer",
                issuer,
                "--claim-header",
                header,
                "--audience",
                "orders",
                "--claim",
                "id=uid",
            ]
        };
        let (at_once, waiting) = reloaded(
            &issuer("https://a/keys", "https://a", "X-Id=a"),
            &issuer("https://b/keys", "https://b", "X-Id=b"),
        );
        assert_eq!(at_once, Vec::<String>::new());
        assert_eq!(waiting, ["claim-header", "issuer", "jwks"]);
        let both = ["--max-key-age", "1", "--public-path", "/a/**"];
        let (at_once, waiting) = reloaded(&AUTH_SERVER, &[&AUTH_SERVER[..], &both].concat());
        assert_eq!(
            (at_once, waiting),
            (
                vec!["public-path".to_owned()],
                vec!["max-key-age".to_owned()]
            )
        );
        let https = ["--upstream", "https://a:1", "--upstream-ca", "/ca"];
        let (at_once, waiting) = reloaded(&AUTH_SERVER, &[&AUTH_SERVER[..], &https].concat());
        assert_eq!(at_once, Vec::<String>::new());
        assert_eq!(waiting, ["upstream", "upstream-ca"]);
    }

    #[test]
    fn what_belongs_to_a_waiting_setting_stays_in_effect() {
        let tls = ["--tls-cert=/c", "--tls-key=/k", "--upstream=https://a:1"];
        let with = |more: &[&str]| args(&[&AUTH_SERVER[..], &tls, more].concat());
        let start = with(&["--client-ca=/1", "--upstream-ca=/1", "--audience=1"]);
        let effective = with(&[
            "--client-ca=/2",
            "--upstream-ca=/2",
            "--audience=2",
            "--public-path=/2",
        ]);
        let read = args(&["--jwks=https://b/", "--issuer=i", "--audience=3"]);
        let now = apply_reloadable(&start, &effective, &read);
        assert_eq!(differences(&effective, &now), Vec::<String>::new());
    }

    #[test]
    fn a_file_changes_with_its_content_and_its_mode() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("secret");
        let mut former = state_of(&path);
        for (content, mode) in [("a", 0o600), ("b", 0o600), ("b", 0o640), ("", 0o640)] {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let now = state_of(&path);
            assert_eq!(now, state_of(&path));
            assert_ne!(now, former, "{content} {mode:o}");
            former = now;
        }
    }
}
