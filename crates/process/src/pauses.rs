//! Growing pauses between attempts that fail.

use std::time::Duration;

/// Pauses that double from the first to the last.
#[derive(Debug, Clone, Copy)]
pub struct Pauses {
    /// The pause after the first failure.
    pub first: Duration,
    /// The pause after many failures.
    pub last: Duration,
}

impl Pauses {
    /// Returns the pause after this number of failures in a row.
    #[must_use]
    pub fn after(&self, failures: u32) -> Duration {
        // Twenty doublings exceed every last pause, far from an overflow.
        self.first
            .saturating_mul(1 << failures.saturating_sub(1).min(20))
            .min(self.last)
    }

    /// Returns the pause of [`Self::after`], shortened by up to half of it: programs that failed together do
    /// not retry together. `chance` is 0.0 up to 1.0.
    #[must_use]
    pub fn jittered(&self, failures: u32, chance: f64) -> Duration {
        self.after(failures).mul_f64(1.0 - chance / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_double_up_to_the_last_and_chance_takes_off_up_to_half() {
        let pauses = Pauses {
            first: Duration::from_millis(200),
            last: Duration::from_secs(5),
        };
        let grown = [1, 2, 3, 4, 5, 6, 7, u32::MAX].map(|n| pauses.after(n).as_millis());
        assert_eq!(grown, [200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
        let jittered = [0.0, 0.5, 1.0].map(|chance| pauses.jittered(2, chance).as_millis());
        assert_eq!(jittered, [400, 300, 200]);
    }
}
