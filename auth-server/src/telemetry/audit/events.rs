//! The names in audit events: ids of requests and tokens, changes of keys and applications.

use postern_http::trace::{RequestId, TraceId};
use postern_process::named_enum;
use postern_token::keys::KeyId;
use postern_token::revocations::statement::Ended;

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

named_enum! {
    pub(crate) enum ApplicationEvent {
        Added = "application_added",
        SecretsChanged = "application_secrets_changed",
        /// The scope, audience or claims of its tokens.
        GrantChanged = "application_grant_changed",
        Removed = "application_removed",
    }
}

/// A revocation of tokens by this process, with the ids in its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RevocationEvent {
    /// The revocation of a token by its `jti`, or of a session by its `sid`, with the user if known.
    Token {
        id: String,
        user: Option<String>,
    },
    User(String),
    Application(String),
    /// The revocation of a session at another issuer, or of the tokens that it gave a user.
    Foreign {
        issuer: String,
        ended: Ended,
    },
    /// The revocation of all tokens of another issuer, by its digest: single revocations became too many.
    Issuer(String),
    /// The revocation of all tokens, also because single revocations became too many.
    Everyone,
}
