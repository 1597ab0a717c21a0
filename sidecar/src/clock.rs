//! Tokens count in seconds since the epoch; the machine's clock may stand on either side of it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) fn unix_seconds(now: SystemTime) -> i64 {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match now.duration_since(UNIX_EPOCH) {
        Ok(since) => seconds(since),
        Err(before) => -seconds(before.duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_on_both_sides_of_the_epoch() {
        let second = Duration::from_secs(1);
        assert_eq!(unix_seconds(UNIX_EPOCH), 0);
        assert_eq!(unix_seconds(UNIX_EPOCH + second), 1);
        assert_eq!(unix_seconds(UNIX_EPOCH - second), -1);
    }
}
