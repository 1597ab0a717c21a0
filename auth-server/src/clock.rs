//! The only clock of this program; decisions get the time as an argument.

use std::time::SystemTime;

/// Seconds since the epoch.
pub(crate) fn unix_now() -> i64 {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX)
}
