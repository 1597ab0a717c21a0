//! The number of file descriptors for clients. Without free descriptors no key is fetched, no file
//! is read and no probe gets a response.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::connection_slots::MAX_BESIDE;

/// Descriptors that clients do not get: for the admin port, as many again for the program itself (listening
/// sockets, connections to store, registry and auth server, files, logs, the runtimes), and for connections
/// that are being closed, or wait for that: of clients, and of both kinds of peers of the admin port.
const RESERVED: u64 = 2 * ADMIN_CONNECTIONS as u64 + 3 * MAX_BESIDE as u64;
/// Max number of connections to the admin port.
pub const ADMIN_CONNECTIONS: usize = 48;
/// The clients' number of descriptors in a process with a very low limit.
const AT_LEAST: u64 = 32;

/// Returns the number of descriptors for clients. Raises the process's soft limit to the hard limit, which
/// costs nothing: the soft limit is low only for programs that call `select(2)`.
#[must_use]
pub fn for_clients() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let granted = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    left_of(granted)
}

/// Subtracts the reserve from the limit; `None` is no limit.
fn left_of(granted: Option<u64>) -> usize {
    let left = match granted {
        Some(all) => all.saturating_sub(RESERVED),
        None => u64::MAX,
    };
    usize::try_from(left.max(AT_LEAST)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_kept_back_and_some_are_always_for_clients() {
        for (granted, expected) in [
            (Some(0), 32),
            (Some(80), 32),
            (Some(1024), 877),
            (Some(1_048_576), 1_048_429),
            (None, usize::MAX),
        ] {
            assert_eq!(left_of(granted), expected, "{granted:?}");
        }
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(for_clients(), left_of(hard));
        assert_eq!(getrlimit(Resource::Nofile).current, hard);
    }
}
