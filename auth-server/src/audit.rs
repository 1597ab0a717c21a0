//! The events an auditor asks for, each one log line of the target `audit` with a stable `event`:
//! `--log-level warn,audit=info` keeps them where everything else is quiet. No line holds a secret.

use std::net::IpAddr;

use tracing::info;

use crate::applications::AppId;
use crate::applications::registrations::Event;
use crate::keys::events::KeyEvent;
use crate::log_text::LogText;

const TARGET: &str = "audit";

/// How a login ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoginEvent {
    Succeeded,
    /// Unknown account, wrong password, or a disabled user.
    Failed,
    /// The account is locked for a while.
    Locked,
    /// The address has to wait.
    Limited,
    /// For a reason that has nothing to do with who logs in.
    Refused,
}

impl LoginEvent {
    fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "login_succeeded",
            Self::Failed => "login_failed",
            Self::Locked => "login_locked",
            Self::Limited => "login_limited",
            Self::Refused => "login_refused",
        }
    }
}

/// `account` is empty where it could not be read. `outcome` is the metric's label.
pub(crate) fn login(event: LoginEvent, account: &str, client: IpAddr, outcome: &str) {
    let account = LogText(account);
    info!(target: TARGET, event = %event.name(), %account, %client, %outcome, "login");
}

/// `app_id` is what may be shown of what was sent as one.
pub(crate) fn key_retrieval(app_id: &str, client: IpAddr, outcome: &str, allowed: bool) {
    let event = if allowed {
        "key_retrieved"
    } else {
        "key_retrieval_refused"
    };
    let app_id = LogText(shown_id(app_id));
    info!(target: TARGET, %event, %app_id, %client, %outcome, "verification key retrieval");
}

/// A client that encodes its query wrongly sends the secret inside the id.
fn shown_id(app_id: &str) -> &str {
    if app_id.contains(['&', ';', '=']) {
        "[not an id]"
    } else {
        app_id
    }
}

pub(crate) fn application(app_id: &AppId, event: Event) {
    let event = match event {
        Event::Added => "application_added",
        Event::SecretsChanged => "application_secrets_changed",
        Event::Removed => "application_removed",
    };
    let app_id = LogText(app_id.as_str());
    info!(target: TARGET, %event, %app_id, "application");
}

/// `at` is when the key signs, or is listed no more, in seconds since the epoch.
pub(crate) fn key(event: &KeyEvent) {
    info!(target: TARGET, event = %event.kind, kid = %event.kid, at = event.at, "key");
}

/// Another content of the users file is in force.
pub(crate) fn users_changed(count: usize) {
    info!(target: TARGET, event = %"users_changed", count, "users");
}

/// What became of this server's entry in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registration {
    Listed,
    Withdrawn,
}

/// `instance` is the address under which others reach this server.
pub(crate) fn registration(event: Registration, instance: &str, registry: &str) {
    let event = match event {
        Registration::Listed => "server_registered",
        Registration::Withdrawn => "server_deregistered",
    };
    info!(target: TARGET, %event, %instance, %registry, "registry");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_went_into_the_id_is_not_shown() {
        assert_eq!(shown_id("orders-1"), "orders-1");
        for text in ["a;appSecret=hush", "a&appSecret=hush", "appSecret=hush"] {
            assert_eq!(shown_id(text), "[not an id]");
        }
    }
}
