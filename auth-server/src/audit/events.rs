//! The logged events of keys, users and applications.

use std::fmt;

use contract::http::trace::{RequestId, TraceId};
use contract::keys::KeyId;

use crate::changed_by::ChangedBy;

/// Ids that correlate log lines of a request, across programs.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestIds {
    pub(crate) request_id: Option<RequestId>,
    pub(crate) trace_id: Option<TraceId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyEvent {
    pub(crate) kind: KeyEventKind,
    pub(crate) kid: KeyId,
    /// Seconds since the epoch when the key will sign or be dropped, if still to come.
    pub(crate) at: Option<i64>,
    /// The actor, where a command recorded one with this very change.
    pub(crate) changed_by: Option<ChangedBy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyEventKind {
    /// Generated here and accepted by the store.
    Generated,
    /// Found in the store.
    Adopted,
    Published,
    Promoted,
    Retired,
    /// Removed after the expiry of its last token.
    Dropped,
    Revoked,
}

impl fmt::Display for KeyEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Generated => "key_generated",
            Self::Adopted => "key_adopted",
            Self::Published => "key_published",
            Self::Promoted => "key_promoted",
            Self::Retired => "key_retired",
            Self::Dropped => "key_dropped",
            Self::Revoked => "key_revoked",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UserChange {
    pub(crate) account: String,
    pub(crate) kind: UserChangeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UserChangeKind {
    Added,
    Removed,
    Disabled,
    Enabled,
    PasswordChanged,
    /// A second factor was set, replaced or removed.
    TotpChanged,
    /// The id, or other claims of the user.
    DetailsChanged,
}

/// A change of an application, for the audit log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ApplicationEvent {
    pub(crate) id: String,
    pub(crate) kind: ApplicationEventKind,
    /// The actor, where a command recorded one with this very change.
    pub(crate) changed_by: Option<ChangedBy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApplicationEventKind {
    Added,
    SecretsChanged,
    /// The scope, audience or claims of its tokens.
    GrantChanged,
    Removed,
}

/// A revocation of tokens that this server saw appear, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RevocationEvent {
    pub(crate) kind: RevocationEventKind,
    /// The `jti`, or the id of the user or the application.
    pub(crate) id: String,
    /// The user of a single token, where that is known.
    pub(crate) user: Option<String>,
    /// The actor, where a command recorded one.
    pub(crate) changed_by: Option<ChangedBy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RevocationEventKind {
    Token,
    User,
    Application,
    /// Single revocations became too many.
    Everyone,
}
