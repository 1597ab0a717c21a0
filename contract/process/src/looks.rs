//! When files that may have changed are looked at: every two seconds, and at SIGHUP.

use std::time::Duration;

use crate::signals::HangUps;

/// Soon enough for somebody who waits for it, and next to no work.
const INTERVAL: Duration = Duration::from_secs(2);

/// What a look is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// It is time again.
    Interval,
    /// Somebody sent SIGHUP.
    HangUp,
}

/// One look after the other.
#[derive(Debug)]
pub struct Looks(HangUps);

impl Looks {
    /// # Errors
    /// Where SIGHUP cannot be received.
    pub fn begin() -> std::io::Result<Self> {
        HangUps::install().map(Self)
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Occasion {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => Occasion::Interval,
            () = self.0.next() => Occasion::HangUp,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::signals::tests::send;

    #[tokio::test]
    async fn a_hang_up_is_a_look_of_its_own() {
        let mut looks = Looks::begin().unwrap();
        send("HUP");
        let hang_up = async { while looks.next().await != Occasion::HangUp {} };
        let told = tokio::time::timeout(Duration::from_secs(30), hang_up).await;
        assert!(told.is_ok(), "the signal was lost");
    }
}
