//! Failures of a command: if it may have arrived, and if a retry may help.

use redis::{ErrorKind, RedisError, RetryMethod, ServerErrorKind};

/// A failed attempt at a command.
pub(super) struct Failed {
    pub(super) error: RedisError,
    /// The server that failed, where it is one of several.
    pub(super) server: Option<String>,
    pub(super) may_have_arrived: bool,
}

/// Returns the failure of a step before any command was sent.
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

    /// Returns the failure of a command that was sent. A client that `repeats` commands returns the error of
    /// its last attempt: unless that error is lasting, an earlier attempt may have arrived.
    pub(super) fn from_query(error: RedisError, repeats: bool) -> Self {
        if is_rejected(&error) && (!repeats || is_lasting(&error)) {
            error.into()
        } else {
            Self::on_the_way(error)
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
    // Without a response that can be read, the command may have run.
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

/// Returns true if waiting cannot help: wrong credentials, missing rights, a command that is switched off,
/// a key of another type. Everything else (connection refused, timeout, loading, read-only, out of memory,
/// failover) may be transient.
pub(super) fn is_lasting(error: &RedisError) -> bool {
    const CODES: [&str; 5] = ["WRONGPASS", "NOAUTH", "NOPERM", "WRONGTYPE", "UNUSABLE"];
    // The texts for a command that is switched off, for a client and for a script.
    const SWITCHED_OFF: [&str; 2] = ["nknown command", "nknown Redis command"];
    // The texts for missing rights of a script from Redis 7 on, which has no code.
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

#[cfg(test)]
mod tests {
    #![expect(clippy::expect_used, reason = "a test fails by panicking")]
    use redis::{Value, parse_redis_value};

    use super::*;

    #[test]
    fn an_error_is_a_rejection_only_of_the_attempt_that_had_it() {
        for (response, of_one, of_a_cluster) in [
            ("-READONLY replica", false, true),
            ("-CLUSTERDOWN The cluster is down", false, true),
            ("-TRYAGAIN Multiple keys", false, true),
            ("-MOVED 5 192.0.2.1:6379", false, true),
            ("-ASK 5 192.0.2.1:6379", false, true),
            ("-MASTERDOWN Link is down", false, true),
            ("-LOADING Redis is loading", false, true),
            ("-NOPERM no permissions", false, false),
            ("-WRONGTYPE not a string", false, false),
            ("-HALFWAY it is full", true, true),
        ] {
            let value = parse_redis_value(format!("{response}\r\n").as_bytes());
            let error = value.and_then(Value::extract_error).expect_err(response);
            for (repeats, may_have_arrived) in [(false, of_one), (true, of_a_cluster)] {
                let failed = Failed::from_query(error.clone(), repeats);
                assert_eq!(
                    failed.may_have_arrived, may_have_arrived,
                    "{response} {repeats}"
                );
            }
        }
    }
}
