//! Audit events: one log line each, of the target `audit`, with a stable `event`. `--log-level
//! warn,audit=info` keeps them where everything else is quiet; no line holds a secret.
//!
//! Untrusted values are recorded as strings, which a text line quotes: none can pass for another
//! field.

pub(crate) mod events;

use std::net::{IpAddr, SocketAddr};

use runtime::logs::rejection_lines::RejectionLine;
use runtime::logs::sanitize::LogText;
use runtime::named_enum;
use tracing::field::display;
use tracing::info;
use wire::keys::KeyId;

use self::events::{ApplicationEvent, KeyEvent, RequestIds, RevocationEventKind, UserChange};

const TARGET: &str = "audit";

named_enum! {
    pub(crate) enum LoginEvent {
        Succeeded = "login_succeeded",
        /// Unknown account, wrong password, or a disabled user.
        Failed = "login_failed",
        /// Within the wait after failures at the account, from this client or its network.
        Locked = "login_locked",
        Limited = "login_limited",
        /// For a reason unrelated to the account.
        Rejected = "login_refused",
    }
}

/// One finished login. `account` is empty where it could not be read; `outcome` is the metric's
/// label.
pub(crate) struct LoginLine<'l> {
    pub(crate) event: LoginEvent,
    pub(crate) account: &'l str,
    pub(crate) client: IpAddr,
    pub(crate) outcome: &'static str,
    pub(crate) token_id: Option<&'l str>,
    pub(crate) key_id: Option<&'l KeyId>,
    /// The same as in the access line.
    pub(crate) ids: &'l RequestIds,
}

pub(crate) fn login(line: &LoginLine<'_>) {
    // The check of a password bounds the number of failures.
    let is_bounded = matches!(line.event, LoginEvent::Succeeded | LoginEvent::Failed);
    if !is_bounded && !RejectionLine::Audit(line.event.name(), line.outcome).has_line() {
        return;
    }
    info!(
        target: TARGET,
        event = %line.event.name(),
        account = LogText(line.account).to_string(),
        client = %line.client,
        outcome = %line.outcome,
        jti = line.token_id.map(display),
        kid = line.key_id.map(display),
        request_id = line.ids.request_id.as_ref().map(display),
        trace_id = line.ids.trace_id.as_ref().map(display),
        "login"
    );
}

/// One finished token request; `app_id` is as it may be logged, `scope` what was granted, `account`
/// the user of an accepted refresh token.
pub(crate) struct TokenLine<'l> {
    pub(crate) grant: &'l str,
    pub(crate) app_id: &'l str,
    pub(crate) account: Option<&'l str>,
    pub(crate) client: IpAddr,
    pub(crate) outcome: &'static str,
    pub(crate) scope: Option<&'l str>,
    pub(crate) token_id: Option<&'l str>,
    pub(crate) key_id: Option<&'l KeyId>,
    /// The same as in the access line.
    pub(crate) ids: &'l RequestIds,
}

/// Logs a request for a token.
pub(crate) fn token(line: &TokenLine<'_>) {
    let event = token_name(line.token_id.is_some());
    if line.token_id.is_none() && !RejectionLine::Audit(event, line.outcome).has_line() {
        return;
    }
    info!(
        target: TARGET,
        %event,
        grant = %line.grant,
        app_id = LogText(line.app_id).to_string(),
        account = line.account.map(|account| LogText(account).to_string()),
        client = %line.client,
        outcome = %line.outcome,
        scope = line.scope,
        jti = line.token_id.map(display),
        kid = line.key_id.map(display),
        request_id = line.ids.request_id.as_ref().map(display),
        trace_id = line.ids.trace_id.as_ref().map(display),
        "token"
    );
}

const fn token_name(issued: bool) -> &'static str {
    if issued {
        "token_issued"
    } else {
        "token_refused"
    }
}

const SESSION_ENDED: &str = "session_ended";

/// Logs the end of a session with a refresh token.
pub(crate) fn session_ended(account: &str, cause: &str) {
    let account = LogText(account).to_string();
    info!(target: TARGET, event = %SESSION_ENDED, account, %cause, "session");
}

/// Logs a retrieval of the verification key; `app_id` is as it may be logged.
pub(crate) fn key_retrieval(app_id: &str, client: IpAddr, outcome: &'static str, allowed: bool) {
    let event = retrieval_name(allowed);
    if !allowed && !RejectionLine::Audit(event, outcome).has_line() {
        return;
    }
    let app_id = LogText(app_id).to_string();
    info!(target: TARGET, %event, app_id, %client, %outcome, "verification key retrieval");
}

const fn retrieval_name(allowed: bool) -> &'static str {
    if allowed {
        "key_retrieved"
    } else {
        "key_retrieval_refused"
    }
}

/// Logs a change of an application; `by` is the actor of a command.
pub(crate) fn application(change: &ApplicationEvent, by: Option<&str>) {
    let event = change.kind.name();
    let app_id = LogText(&change.id).to_string();
    info!(target: TARGET, %event, app_id, by, "application");
}

/// Logs a key event; `at` is when the key starts to sign, or is dropped, in seconds since the
/// epoch, and `by` the actor of a command.
pub(crate) fn key(event: &KeyEvent, by: Option<&str>) {
    info!(target: TARGET, event = %event.kind.name(), kid = %event.kid, at = event.at, by, "key");
}

/// Logs a revocation of tokens with the `jti`, the user and the application that it names; `by` is the
/// actor of a command.
pub(crate) fn revocation(kind: RevocationEventKind, named: [Option<&str>; 3], by: Option<&str>) {
    let [jti, user, app_id] = named.map(|id| id.map(|id| LogText(id).to_string()));
    info!(target: TARGET, event = %kind.name(), jti, user, app_id, by, "revocation");
}

const USERS_CHANGED: &str = "users_changed";
/// Bounds the lines where a whole file was replaced; `users_changed` counts all changes.
const MAX_USER_LINES: usize = 1000;

/// Logs that new content of the users file is in force, with the number of users and what changed.
pub(crate) fn users_changed(count: usize, changes: &[UserChange]) {
    for UserChange { account, kind } in changes.iter().take(MAX_USER_LINES) {
        let account = LogText(account).to_string();
        info!(target: TARGET, event = %kind.name(), account, "user");
    }
    info!(target: TARGET, event = %USERS_CHANGED, count, changes = changes.len(), "users");
}

const SERVER_STARTED: &str = "server_started";
const SERVER_STOPPING: &str = "server_stopping";

/// Logs that this server accepts requests at `listen`.
pub(crate) fn server_started(listen: Option<SocketAddr>) {
    let version = env!("CARGO_PKG_VERSION");
    let listen = listen.map(display);
    info!(target: TARGET, event = %SERVER_STARTED, %version, listen, "server");
}

/// Logs the begin of the shutdown; `cause` is the signal or the error behind it.
pub(crate) fn server_stopping(cause: &str) {
    info!(target: TARGET, event = %SERVER_STOPPING, cause, "server");
}

named_enum! {
    /// Change of this server's entry in the registry.
    pub(crate) enum Registration {
        Listed = "server_registered",
        Withdrawn = "server_deregistered",
    }
}

/// Logs a registration; `instance` is the address under which others reach this server.
pub(crate) fn registration(event: Registration, instance: &str, registry: &str) {
    let event = event.name();
    info!(target: TARGET, %event, %instance, %registry, "registry");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::events::{ApplicationEventKind, KeyEventKind, UserChangeKind};
    use super::*;

    fn names() -> BTreeSet<String> {
        let plain = [
            USERS_CHANGED,
            SESSION_ENDED,
            SERVER_STARTED,
            SERVER_STOPPING,
            retrieval_name(true),
            retrieval_name(false),
            token_name(true),
            token_name(false),
        ];
        plain
            .into_iter()
            .chain(UserChangeKind::ALL.map(UserChangeKind::name))
            .chain(RevocationEventKind::ALL.map(RevocationEventKind::name))
            .chain(LoginEvent::ALL.map(LoginEvent::name))
            .chain(ApplicationEventKind::ALL.map(ApplicationEventKind::name))
            .chain(Registration::ALL.map(Registration::name))
            .chain(KeyEventKind::ALL.map(KeyEventKind::name))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn the_documented_table_names_each_event_and_no_other() {
        let document = include_str!("../../docs/users.md");
        let rows = document
            .lines()
            .skip_while(|line| *line != "## Audit events");
        let rows = rows.skip_while(|line| !line.starts_with('|'));
        let rows = rows.take_while(|line| line.starts_with('|'));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let documented: BTreeSet<String> = cells
            .flat_map(|cell| cell.split('`').skip(1).step_by(2))
            .map(str::to_owned)
            .collect();
        assert_eq!(documented, names());
    }
}
