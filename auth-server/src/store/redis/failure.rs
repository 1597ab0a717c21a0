//! Failures of a command, and what they leave to do.

use redis::{ErrorKind, RedisError, RetryMethod, ServerErrorKind};

/// A failed attempt at a command.
pub(super) struct Failed {
    pub(super) error: RedisError,
    /// The server that failed, where it is one of several.
    pub(super) server: Option<String>,
    pub(super) may_have_arrived: bool,
}

/// Returns the failure of what sent no command.
impl From<RedisError> for Failed {
    fn from(error: RedisError) -> Self {
        Self {
            error,
            server: None,
            may_have_arrived: false,
        }
    }
}

impl Failed {
    /// Returns the failure of a command that the server may have got.
    pub(super) fn on_the_way(error: RedisError) -> Self {
        Self {
            may_have_arrived: true,
            ..error.into()
        }
    }

    /// Returns the failure of a command that was sent.
    pub(super) fn of_query(error: RedisError) -> Self {
        match is_rejected(&error) {
            true => error.into(),
            false => Self::on_the_way(error),
        }
    }

    /// Returns the failure of both attempts.
    pub(super) fn after(self, first: &Self) -> Self {
        Self {
            may_have_arrived: first.may_have_arrived || self.may_have_arrived,
            ..self
        }
    }
}

/// Returns true if the server, or the client before it sent anything, rejected the command as a whole.
fn is_rejected(error: &RedisError) -> bool {
    let is_without_response = matches!(
        error.kind(),
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::UnexpectedReturnType
    );
    !is_without_response && !is_halfway(error)
}

/// Returns true if a script failed after it had begun to write.
pub(super) fn is_halfway(error: &RedisError) -> bool {
    error.code() == Some("HALFWAY")
}

/// Returns true if an immediate retry may help: the peer is no longer the master, or the connection
/// broke. An unresponsive peer is not retried, nor is a script that failed.
pub(super) fn is_worth_repeating(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => {
            !matches!(error.retry_method(), RetryMethod::NoRetry)
        }
        _ => !(error.is_timeout() || error.is_connection_refusal() || is_lasting(error)),
    }
}

/// Returns true if waiting cannot help: wrong credentials, missing rights, a command that is switched off, a
/// key of another type.
/// Everything else (connection refused, timeout, loading, read-only, out of memory, failover) may
/// be transient.
pub(super) fn is_lasting(error: &RedisError) -> bool {
    const CODES: [&str; 5] = ["WRONGPASS", "NOAUTH", "NOPERM", "WRONGTYPE", "UNUSABLE"];
    // Of a client and of a script.
    const SWITCHED_OFF: [&str; 2] = ["nknown command", "nknown Redis command"];
    // Of a script from Redis 7 on, without a code.
    const DENIED: [&str; 2] = ["executing the script can't", "ACL failure in script"];
    // The client's text for a rejected SELECT, which lacks the code. Redis accepts SELECT even
    // while it loads or has lost its master.
    const DATABASE_REJECTED: &str = "refused to switch database";
    match error.kind() {
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::Parse
        | ErrorKind::UnexpectedReturnType
        | ErrorKind::Server(ServerErrorKind::NoPerm) => true,
        _ if error.to_string().contains(DATABASE_REJECTED) => true,
        _ => CODES
            .iter()
            .chain(&SWITCHED_OFF)
            .chain(&DENIED)
            .any(|text| {
                error.code() == Some(text)
                    || error.detail().is_some_and(|detail| detail.contains(text))
            }),
    }
}
