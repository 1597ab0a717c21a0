//! The pace of the harness itself: while it stands still, on a machine with too much to do, its peers' waits
//! end without it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(50);
/// A tenth of the shortest wait: a request is sent again within a second.
const LATE: Duration = Duration::from_millis(100);

/// The times in which the harness stood still.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Vec<(Instant, Instant)>>);

impl Pace {
    /// Notes them for as long as it is polled.
    pub(super) async fn watch(&self) {
        loop {
            let begin = Instant::now();
            tokio::time::sleep(TICK).await;
            if begin.elapsed() > TICK + LATE {
                let mut gaps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                gaps.push((begin, Instant::now()));
            }
        }
    }

    /// Returns true if one of them lies within these two times.
    pub(super) fn has_gap(&self, begin: Instant, end: Instant) -> bool {
        let gaps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut later = gaps.iter().rev().take_while(|gap| gap.1 > begin);
        later.any(|gap| gap.0 < end)
    }
}
