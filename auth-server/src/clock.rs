//! The only clock of this program; decisions get the time as an argument.

use std::time::{Duration, SystemTime};

/// Seconds since the epoch.
pub(crate) fn unix_now() -> i64 {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX)
}

/// How long it is until `time`, in seconds since the epoch; zero where that is over.
pub(crate) fn until(time: i64) -> Duration {
    let time = Duration::from_secs(time.try_into().unwrap_or_default());
    let until = SystemTime::UNIX_EPOCH
        .checked_add(time)
        .map(|time| time.duration_since(SystemTime::now()));
    match until {
        Some(until) => until.unwrap_or_default(),
        None => Duration::MAX,
    }
}
