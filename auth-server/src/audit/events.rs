//! The logged events of keys, users and applications.

use runtime::named_enum;
use wire::http::trace::{RequestId, TraceId};
use wire::keys::KeyId;

/// Ids that correlate log lines of a request, across programs.
#[derive(Debug, Clone)]
pub(crate) struct RequestIds {
    pub(crate) request_id: RequestId,
    pub(crate) trace_id: Option<TraceId>,
}

/// Ids of an issued token.
#[derive(Debug)]
pub(crate) struct TokenIds {
    pub(crate) token_id: String,
    pub(crate) key_id: KeyId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyEvent {
    pub(crate) kind: KeyEventKind,
    pub(crate) kid: KeyId,
    /// Seconds since the epoch when the key will sign or be dropped, if still to come.
    pub(crate) at: Option<i64>,
}

named_enum! {
    pub(crate) enum KeyEventKind {
        /// Generated here and accepted by the store.
        Generated = "key_generated",
        /// Found in the store.
        Adopted = "key_adopted",
        Published = "key_published",
        Promoted = "key_promoted",
        Retired = "key_retired",
        /// Removed after the expiry of its last token.
        Dropped = "key_dropped",
        Revoked = "key_revoked",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UserChange {
    pub(crate) account: String,
    pub(crate) kind: UserChangeKind,
}

named_enum! {
    #[derive(PartialOrd, Ord)]
    pub(crate) enum UserChangeKind {
        Added = "user_added",
        Removed = "user_removed",
        Disabled = "user_disabled",
        Enabled = "user_enabled",
        PasswordChanged = "user_password_changed",
        /// A second factor was set, replaced or removed.
        TotpChanged = "user_totp_changed",
        /// The id, or other claims of the user.
        DetailsChanged = "user_details_changed",
    }
}

named_enum! {
    pub(crate) enum ApplicationEvent {
        Added = "application_added",
        SecretsChanged = "application_secrets_changed",
        /// The scope, audience or claims of its tokens.
        GrantChanged = "application_grant_changed",
        Removed = "application_removed",
    }
}

named_enum! {
    /// A revocation of tokens by this process.
    pub(crate) enum RevocationEventKind {
        Token = "token_revoked",
        User = "user_revoked",
        Application = "application_revoked",
        /// Single revocations became too many.
        Everyone = "everyone_revoked",
    }
}
