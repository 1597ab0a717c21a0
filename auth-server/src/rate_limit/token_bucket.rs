//! Token bucket: a burst, then a steady rate.

use std::time::{Duration, Instant};

use super::RetryAfter;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Attempts allowed at once when full.
    pub(crate) burst: u32,
    /// Time until one more is allowed.
    pub(crate) every: Duration,
}

impl Rate {
    /// Returns `count` attempts a minute, which may all come at once.
    pub(crate) fn per_minute(count: u32) -> Self {
        let count = count.max(1);
        Self {
            burst: count,
            every: Duration::from_secs(60) / count,
        }
    }
}

/// A bucket. It stores the moment at which it will be full (generic cell rate algorithm), which is not
/// rounded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenBucket {
    full_at: Instant,
}

impl TokenBucket {
    pub(crate) fn full(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Takes one token.
    ///
    /// # Errors
    /// [`RetryAfter`] while the bucket is empty; a rejected call takes no token.
    pub(crate) fn take(&mut self, rate: Rate, now: Instant) -> Result<(), RetryAfter> {
        // The time to full after this token; beyond the capacity the bucket would be below empty.
        let missing = self.full_at.saturating_duration_since(now) + rate.every;
        match missing.checked_sub(rate.every.saturating_mul(rate.burst)) {
            Some(wait) if !wait.is_zero() => Err(RetryAfter(wait)),
            _ => {
                self.full_at = now + missing;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const RATE: Rate = Rate {
        burst: 3,
        every: Duration::from_secs(10),
    };

    #[test]
    fn a_burst_then_one_at_a_time() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(start);
        for (second, expected) in [
            (0, Ok(())),
            (0, Ok(())),
            (0, Ok(())),
            (0, Err(RetryAfter(10 * SECOND))),
            (4, Err(RetryAfter(6 * SECOND))),
            (10, Ok(())),
            (10, Err(RetryAfter(10 * SECOND))),
            // After a long pause: one burst, no more.
            (1000, Ok(())),
            (1000, Ok(())),
            (1000, Ok(())),
            (1000, Err(RetryAfter(10 * SECOND))),
        ] {
            let now = start + second * SECOND;
            assert_eq!(bucket.take(RATE, now), expected, "at {second} s");
        }
    }

    #[test]
    fn a_rate_per_minute_is_at_most_twice_that_in_the_first() {
        let start = Instant::now();
        let mut bucket = TokenBucket::full(start);
        let rate = Rate::per_minute(60);
        let accepted = (0..60_000_u32)
            .filter(|ms| {
                let now = start + *ms * Duration::from_millis(1);
                bucket.take(rate, now).is_ok()
            })
            .count();
        assert_eq!(accepted, 60 + 59);
    }
}
