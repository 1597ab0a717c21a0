//! Audit events: one log line each, of the target `audit`, with a stable `event`. `--log-level
//! warn,audit=info` keeps these lines and silences other ones; no line holds a secret.
//!
//! Untrusted values are recorded as strings, which a text line quotes: no value can pass for another field.

pub(crate) mod events;

use std::net::{IpAddr, SocketAddr};

use postern_process::logs::rejection_lines::RejectionLine;
use postern_process::logs::sanitize::LogText;
use postern_process::named_enum;
use postern_token::revocations::statement::Ended;
use tracing::info;

use self::events::{ApplicationEvent, KeyEvent, RequestIds, RevocationEvent, TokenIds};

const TARGET: &str = "audit";

named_enum! {
    /// The end of a request for a token, or for the verification key.
    pub(crate) enum RequestEvent {
        LoginSucceeded = "login_succeeded",
        /// Unknown account, wrong password, or a disabled user.
        LoginFailed = "login_failed",
        /// Within the wait after failures at the account, from this client or its network.
        LoginLocked = "login_locked",
        LoginLimited = "login_limited",
        /// For a reason unrelated to the account.
        LoginRejected = "login_rejected",
        TokenIssued = "token_issued",
        TokenRejected = "token_rejected",
        KeyRetrieved = "key_retrieved",
        KeyRejected = "key_retrieval_rejected",
    }
}

/// One finished request. `account` and `app_id` are in the form that may be logged, `scope` is the granted
/// scope, `outcome` is the label of the metric.
pub(crate) struct RequestLine<'l> {
    pub(crate) event: RequestEvent,
    pub(crate) grant: Option<&'static str>,
    pub(crate) app_id: Option<&'l str>,
    pub(crate) account: Option<&'l str>,
    pub(crate) client: IpAddr,
    pub(crate) outcome: &'static str,
    pub(crate) scope: Option<&'l str>,
    pub(crate) token: Option<&'l TokenIds>,
    /// The ids of the request, as in its access line.
    pub(crate) ids: Option<&'l RequestIds>,
}

pub(crate) fn request(line: &RequestLine<'_>) {
    use RequestEvent::{KeyRetrieved, LoginFailed, LoginSucceeded, TokenIssued};
    // The check of a password bounds the number of failures.
    let is_bounded = matches!(
        line.event,
        LoginSucceeded | LoginFailed | TokenIssued | KeyRetrieved
    );
    // A rejection that no password check bounds counts against the lines of its kind.
    if !is_bounded && !RejectionLine::Audit(line.event.name(), line.outcome).takes_line() {
        return;
    }
    info!(
        target: TARGET,
        event = %line.event.name(),
        grant = line.grant.map(display),
        app_id = logged(line.app_id),
        account = logged(line.account),
        client = %line.client,
        outcome = %line.outcome,
        scope = line.scope,
        jti = line.token.map(|token| display(&token.token_id)),
        kid = line.token.map(|token| display(&token.key_id)),
        request_id = line.ids.map(|ids| display(&ids.request_id)),
        trace_id = line.ids.and_then(|ids| ids.trace_id.as_ref()).map(display),
        "request"
    );
}

fn logged<T: AsRef<str> + ?Sized>(name: Option<&T>) -> Option<String> {
    Some(LogText(name?.as_ref()).to_string())
}

const SESSION_ENDED: &str = "session_ended";

/// Logs the end of a session with a refresh token.
pub(crate) fn session_ended(account: &str, cause: &str) {
    let account = LogText(account).to_string();
    info!(target: TARGET, event = %SESSION_ENDED, account, %cause, "session");
}

/// Logs a change of an application; `by` is the actor of a command.
pub(crate) fn application(event: ApplicationEvent, id: &str, by: Option<&str>) {
    let app_id = LogText(id).to_string();
    info!(target: TARGET, event = %event.name(), app_id, by, "application");
}

/// Logs a key event; `at` is when the key starts to sign, or is dropped, in seconds since the
/// epoch, and `by` the actor of a command.
pub(crate) fn key(event: &KeyEvent, by: Option<&str>) {
    info!(target: TARGET, event = %event.kind.name(), kid = %event.kid, at = event.at, by, "key");
}

const TOKEN_REVOKED: &str = "token_revoked";
const USER_REVOKED: &str = "user_revoked";
const APPLICATION_REVOKED: &str = "application_revoked";
const SESSION_REVOKED: &str = "session_revoked";
const ISSUER_REVOKED: &str = "issuer_revoked";
const EVERYONE_REVOKED: &str = "everyone_revoked";

/// The ids in the line of a revocation.
#[derive(Default)]
struct RevokedIds<'l> {
    jti: Option<&'l String>,
    user: Option<&'l String>,
    app_id: Option<&'l String>,
    issuer: Option<&'l String>,
    sid: Option<&'l String>,
}

/// Logs a revocation of tokens; `by` is the actor of a command.
pub(crate) fn revocation(event: &RevocationEvent, by: Option<&str>) {
    use RevocationEvent::{Application, Everyone, Foreign, Issuer, Token, User};
    let mut ids = RevokedIds::default();
    let event = match event {
        Token { id, user } => {
            (ids.jti, ids.user) = (Some(id), user.as_ref());
            TOKEN_REVOKED
        }
        User(id) => {
            ids.user = Some(id);
            USER_REVOKED
        }
        Application(id) => {
            ids.app_id = Some(id);
            APPLICATION_REVOKED
        }
        Foreign { issuer, ended } => {
            ids.issuer = Some(issuer);
            match ended {
                Ended::Session { session, user } => {
                    (ids.sid, ids.user) = (Some(session), user.as_ref());
                    SESSION_REVOKED
                }
                Ended::User(user) => {
                    ids.user = Some(user);
                    USER_REVOKED
                }
            }
        }
        Issuer(digest) => {
            ids.issuer = Some(digest);
            ISSUER_REVOKED
        }
        Everyone => EVERYONE_REVOKED,
    };
    info!(
        target: TARGET,
        event = %event,
        jti = logged(ids.jti),
        user = logged(ids.user),
        app_id = logged(ids.app_id),
        issuer = logged(ids.issuer),
        sid = logged(ids.sid),
        by,
        "revocation"
    );
}

const USER_CHANGED: &str = "user_changed";
const USERS_CHANGED: &str = "users_changed";
/// Max number of lines if a whole file was replaced; `users_changed` counts all changes.
const MAX_USER_LINES: usize = 1000;

/// Logs that new content of the users file is in force, with the number of users and the accounts that are
/// new, gone or changed.
pub(crate) fn users_changed(count: usize, changed: &[String]) {
    // A new file may change all users at once; the last line has the whole number.
    for account in changed.iter().take(MAX_USER_LINES) {
        let account = LogText(account).to_string();
        info!(target: TARGET, event = %USER_CHANGED, account, "user");
    }
    info!(target: TARGET, event = %USERS_CHANGED, count, changes = changed.len(), "users");
}

const SERVER_STARTED: &str = "server_started";
const SERVER_STOPPING: &str = "server_stopping";

/// Logs that this server accepts requests at `listen`.
pub(crate) fn server_started(listen: SocketAddr) {
    let version = env!("CARGO_PKG_VERSION");
    info!(target: TARGET, event = %SERVER_STARTED, %version, %listen, "server");
}

/// Logs the start of the shutdown; `cause` is the signal or the error that caused it.
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
    info!(target: TARGET, event = %event.name(), %instance, %registry, "registry");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::events::KeyEventKind;
    use super::*;

    fn names() -> BTreeSet<String> {
        let plain = [
            USER_CHANGED,
            USERS_CHANGED,
            SESSION_ENDED,
            SERVER_STARTED,
            SERVER_STOPPING,
            TOKEN_REVOKED,
            USER_REVOKED,
            APPLICATION_REVOKED,
            SESSION_REVOKED,
            ISSUER_REVOKED,
            EVERYONE_REVOKED,
        ];
        plain
            .into_iter()
            .chain(RequestEvent::ALL.map(RequestEvent::name))
            .chain(ApplicationEvent::ALL.map(ApplicationEvent::name))
            .chain(Registration::ALL.map(Registration::name))
            .chain(KeyEventKind::ALL.map(KeyEventKind::name))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn the_documented_table_names_each_event_and_no_other() {
        let document = include_str!("../../../docs/users.md");
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
