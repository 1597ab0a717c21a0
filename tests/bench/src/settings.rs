//! Length and precision of a measurement, from the environment that `make` sets.

use std::str::FromStr;
use std::time::Duration;

/// The settings of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// `SMOKE=1`: everything once and as short as possible, as a test. The figures mean nothing.
    pub smoke: bool,
    /// `ROUNDS=n`: turns of each contestant.
    pub rounds: usize,
    /// `SECONDS_EACH=n`: length of a turn.
    pub turn: Duration,
    /// `WRITE=1`: writes the result into the documents.
    pub write: bool,
}

impl Settings {
    /// Reads the environment, with the defaults of this measurement.
    ///
    /// # Panics
    /// When a variable is not a number.
    pub fn from_environment(rounds: usize, seconds: f64) -> Self {
        let smoke = is_set("SMOKE");
        let (rounds, seconds) = if smoke { (1, 0.3) } else { (rounds, seconds) };
        Self {
            smoke,
            rounds: number("ROUNDS").unwrap_or(rounds).max(1),
            turn: Duration::from_secs_f64(number("SECONDS_EACH").unwrap_or(seconds)),
            write: is_set("WRITE") && !smoke,
        }
    }

    /// Returns the verdict on a target; empty in a smoke run.
    pub const fn verdict(&self, met: bool) -> &'static str {
        match (self.smoke, met) {
            (true, _) => "a smoke run: no verdict",
            (false, true) => "met",
            (false, false) => "missed",
        }
    }

    /// Returns `full`, or `tiny` in a smoke run.
    pub const fn amount(&self, full: usize, tiny: usize) -> usize {
        if self.smoke { tiny } else { full }
    }
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn is_set(name: &str) -> bool {
    text(name).is_some_and(|text| text != "0")
}

fn number<T: FromStr>(name: &str) -> Option<T> {
    let text = text(name)?;
    let number = text.parse().ok();
    assert!(number.is_some(), "{name}={text}: expected a number");
    number
}
