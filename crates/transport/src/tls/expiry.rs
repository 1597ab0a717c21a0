//! The ends of the certificates in use: a note of readiness, and a line in the log as each one comes
//! near and passes.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use postern_process::clock::unix_now;
use postern_token::times::{duration, moment};
use tracing::warn;

/// As the alerts of `deploy/prometheus`; of a certificate for less than three weeks a third of its life.
const SOON_SECONDS: i64 = 7 * 86_400;
/// The same as for followed files.
const INTERVAL: Duration = Duration::from_secs(2);

/// The lists of this process.
static IN_USE: Mutex<Vec<Weak<Mutex<Vec<End>>>>> = Mutex::new(Vec::new());

/// The end of the certificate in a file, or of the last authority there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct End {
    /// The setting and the file.
    pub(super) named: String,
    /// In seconds since 1970.
    pub(super) at: i64,
    /// The time from which it is near.
    near: i64,
}

impl End {
    /// Describes the end of what is valid from a time to another.
    pub(super) fn new(named: String, [from, at]: [i64; 2]) -> Self {
        let life = at.saturating_sub(from).max(0);
        let near = at.saturating_sub(SOON_SECONDS.min(life / 3));
        Self { named, at, near }
    }

    /// Returns the warning at `now`, if one is due.
    pub(super) fn warning(&self, now: i64) -> Option<String> {
        let Self { named, at, near } = self;
        if now <= *near {
            return None;
        }
        let ending = if now > *at {
            "has expired".to_owned()
        } else {
            format!("expires in {},", duration(at.abs_diff(now)))
        };
        Some(format!(
            "{named}: the certificate {ending} at {}",
            moment(*at)
        ))
    }

    /// Returns true if it has come near, or passed, `since` a time.
    fn has_advanced(&self, since: i64, now: i64) -> bool {
        let moments = since..now;
        moments.contains(&self.at) || moments.contains(&self.near)
    }
}

/// Makes a list of ends that counts for as long as it is held.
pub(super) fn in_use(ends: &[End]) -> Arc<Mutex<Vec<End>>> {
    let list = Arc::new(Mutex::new(ends.to_vec()));
    let mut lists = IN_USE.lock();
    lists.retain(|list| list.strong_count() > 0);
    lists.push(Arc::downgrade(&list));
    list
}

fn ends() -> BTreeSet<End> {
    let mut ends = BTreeSet::new();
    for list in IN_USE.lock().iter().filter_map(Weak::upgrade) {
        ends.extend(list.lock().clone());
    }
    ends
}

/// Returns the warnings that are due at `now`.
pub(crate) fn warnings(now: i64) -> Vec<String> {
    ends().iter().filter_map(|end| end.warning(now)).collect()
}

/// Logs for as long as the process lives; what is due at its start stands in the warnings of that.
pub(crate) async fn watch() {
    let mut since = unix_now();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = unix_now();
        for end in ends().iter().filter(|end| end.has_advanced(since, now)) {
            warn!("{}", end.warning(now).unwrap_or_default());
        }
        since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_near_in_the_last_week_or_third_of_a_life() {
        const DAY: i64 = 86_400;
        for (life, near) in [(365 * DAY, 358 * DAY), (6 * DAY, 4 * DAY), (90, 60), (0, 0)] {
            let end = End::new("cert".to_owned(), [0, life]);
            assert_eq!(end.warning(near), None, "{life}");
            assert!(end.warning(near + 1).is_some(), "{life}");
            assert!(end.has_advanced(near, near + 1) && !end.has_advanced(near - 1, near));
        }
    }
}
