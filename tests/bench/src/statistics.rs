//! Median and spread. On a shared machine, other processes distort a mean.

use std::fmt;

/// The median of some rounds, and their spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The middle round.
    pub median: f64,
    /// The lowest round.
    pub lowest: f64,
    /// The highest round.
    pub highest: f64,
}

impl Summary {
    /// Summarizes the values; returns `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: middle(&sorted)?,
            lowest: *sorted.first()?,
            highest: *sorted.last()?,
        })
    }

    /// Summarizes the ratios of two series, round by round: a disturbance of the machine affects
    /// both values of a round.
    pub fn of_ratios(values: &[f64], against: &[f64]) -> Option<Self> {
        let ratios: Vec<_> = values.iter().zip(against).map(|(a, b)| a / b).collect();
        Self::of(&ratios)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            median,
            lowest,
            highest,
        } = self;
        let digits = f.precision().unwrap_or(2);
        write!(
            f,
            "{median:.digits$} ({lowest:.digits$}–{highest:.digits$})"
        )
    }
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let upper = sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(*upper);
    }
    let lower = sorted.get((sorted.len() / 2).checked_sub(1)?)?;
    Some(f64::midpoint(*lower, *upper))
}

/// Returns the value that `share` of all (0 to 1) do not exceed; `sorted` ascending.
///
/// # Panics
/// When there are no values.
pub fn percentile<T: Copy>(sorted: &[T], share: f64) -> T {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "an index among far fewer than 2^52 values"
    )]
    let rank = (share * sorted.len() as f64).ceil() as usize;
    let index = rank.max(1).min(sorted.len()) - 1;
    *sorted.get(index).expect("at least one value")
}
