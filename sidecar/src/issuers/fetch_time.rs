//! The time of a fetch, which another process may have made.

use std::time::{Duration, Instant};

/// The time of a fetch of keys or of a list. A process that started later has no [`Instant`] for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchTime {
    /// The time when this process got what was fetched.
    learned_at: Instant,
    /// Its age at that time; `None` if this process fetched it itself.
    cached_for: Option<Duration>,
}

impl FetchTime {
    /// Returns the time of a fetch by another process, this long before `now`.
    pub(crate) const fn before(now: Instant, age: Duration) -> Self {
        Self {
            learned_at: now,
            cached_for: Some(age),
        }
    }

    /// Returns true for a fetch by another process.
    pub(super) const fn is_of_other_process(self) -> bool {
        self.cached_for.is_some()
    }

    pub(super) fn age(self, now: Instant) -> Duration {
        now.saturating_duration_since(self.learned_at)
            .saturating_add(self.cached_for.unwrap_or_default())
    }
}

/// A fetch by this process.
impl From<Instant> for FetchTime {
    fn from(now: Instant) -> Self {
        Self {
            learned_at: now,
            cached_for: None,
        }
    }
}
