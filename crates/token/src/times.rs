//! Times and durations as text, for operators; here, because this is the lowest crate that prints a time.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Parses a time of the command line: seconds since the epoch, or RFC 3339.
///
/// # Errors
/// The expected form.
pub fn parse_moment(text: &str) -> Result<i64, &'static str> {
    text.parse().or_else(|_| {
        OffsetDateTime::parse(text, &Rfc3339)
            .map(OffsetDateTime::unix_timestamp)
            .map_err(|_| "expected seconds since the epoch, or a time as 2026-01-31T12:00:00Z")
    })
}

/// Formats a time as RFC 3339 in UTC, or as the number itself outside of the calendar.
pub fn moment(seconds: i64) -> String {
    OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| seconds.to_string())
}

/// Formats the distance of a time from `now`: `in 3 min 20 s`, `3 min 20 s ago`.
pub fn distance(time: i64, now: i64) -> String {
    let seconds = time.saturating_sub(now);
    let duration = duration(seconds.unsigned_abs());
    if seconds > 0 {
        format!("in {duration}")
    } else {
        format!("{duration} ago")
    }
}

/// Formats a duration in its two largest units: `3 min 20 s`.
pub fn duration(seconds: u64) -> String {
    match (
        seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    ) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_or_a_date() {
        assert_eq!(parse_moment("100"), Ok(100));
        assert_eq!(parse_moment("1970-01-01T01:01:40+01:00"), Ok(100));
        assert!(parse_moment("yesterday").is_err());
    }
}
