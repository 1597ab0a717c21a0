//! The ends of the certificates in use: a note of readiness, and a line in the log as each one comes
//! near and passes.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use postern_process::clock::unix_now;
use postern_token::times::{duration, moment};
use tracing::warn;

/// As the alerts of `deploy/prometheus`.
const SOON_SECONDS: i64 = 7 * 86_400;
/// The same as for followed files.
const INTERVAL: Duration = Duration::from_secs(2);

/// Those of this process.
static IN_USE: Mutex<Vec<Weak<Mutex<Vec<End>>>>> = Mutex::new(Vec::new());

/// The end of the certificate in a file, or of the last authority there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct End {
    /// The setting and the file.
    pub(super) named: String,
    /// In seconds since 1970.
    pub(super) at: i64,
}

impl End {
    /// Returns the warning at `now`, if one is due.
    pub(super) fn warning(&self, now: i64) -> Option<String> {
        let Self { named, at } = self;
        let left = duration(at.abs_diff(now));
        let ending = match at.saturating_sub(now) {
            ..0 => "has expired".to_owned(),
            0..SOON_SECONDS => format!("expires in {left},"),
            _ => return None,
        };
        Some(format!(
            "{named}: the certificate {ending} at {}",
            moment(*at)
        ))
    }

    /// Returns true if it has come near, or passed, `since` a time.
    fn has_advanced(&self, since: i64, now: i64) -> bool {
        [self.at, self.at.saturating_sub(SOON_SECONDS)]
            .iter()
            .any(|time| (since..now).contains(time))
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
    let lists = IN_USE.lock();
    lists
        .iter()
        .filter_map(Weak::upgrade)
        .flat_map(|list| list.lock().clone())
        .collect()
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
