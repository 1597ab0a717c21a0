//! Reminders that requests are only reported: a log line every hour.

use postern_token::times::moment;

const SECONDS_BETWEEN: i64 = 60 * 60;

/// The time of the next reminder.
#[derive(Debug, Default)]
pub(super) struct Reminder {
    next: Option<i64>,
}

/// A line for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// Requests are only reported until this time.
    Reporting(i64),
    /// Requests are rejected from now on.
    Enforcing,
}

impl Reminder {
    /// Returns the line that is due at `now`, if requests are reported `until` a time or rejected.
    pub(super) fn due(&mut self, until: Option<i64>, now: i64) -> Option<Notice> {
        match (until, self.next) {
            (None, None) => None,
            (None, Some(_)) => {
                self.next = None;
                Some(Notice::Enforcing)
            }
            (Some(_), Some(next)) if now < next => None,
            (Some(until), _) => {
                self.next = Some(now.saturating_add(SECONDS_BETWEEN));
                Some(Notice::Reporting(until))
            }
        }
    }
}

impl Notice {
    pub(super) fn log(self) {
        match self {
            Self::Reporting(until) => tracing::warn!(
                until = moment(until),
                "--enforce report: requests without a valid token reach the service"
            ),
            Self::Enforcing => tracing::info!("requests without a valid token are rejected"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reminder_is_due_every_hour_until_requests_are_rejected() {
        let mut reminder = Reminder::default();
        let until = Some(10_000);
        for (now, until, expected) in [
            (0, None, None),
            (1, until, Some(Notice::Reporting(10_000))),
            (2, until, None),
            (3600, until, None),
            (3601, until, Some(Notice::Reporting(10_000))),
            (7200, until, None),
            (7201, until, Some(Notice::Reporting(10_000))),
            (7300, None, Some(Notice::Enforcing)),
            (7301, None, None),
            (7302, until, Some(Notice::Reporting(10_000))),
        ] {
            assert_eq!(reminder.due(until, now), expected, "{now}");
        }
    }
}
