//! The writer of the key cache: in the background, and only what is new.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use postern_process::clock::unix_seconds;
use postern_process::files::owner_only_file;

use super::cache_file::{CacheError, Content, Found, KeyCacheSettings, KeysOrigin};
use super::installed_keys::InstalledKeys;
use super::revocations::Revocations;
use crate::telemetry::metrics::Metrics;

/// The file, and its only writer.
#[derive(Debug, Clone)]
pub(crate) struct KeyCache {
    settings: KeyCacheSettings,
    queue: Arc<Mutex<Queue>>,
    /// True while the file cannot be written, for the readiness report.
    failing: Arc<AtomicBool>,
    metrics: Metrics,
}

/// The contents to write, one after the other, so that the last one stays in the file.
#[derive(Debug, Default)]
struct Queue {
    next: Option<Arc<Content>>,
    is_writing: bool,
    /// The content of the file once all writes are over; `None` after one that failed.
    last: Option<Arc<Content>>,
}

impl KeyCache {
    pub(crate) fn new(
        settings: KeyCacheSettings,
        metrics: Metrics,
        failing: Arc<AtomicBool>,
    ) -> Self {
        Self {
            settings,
            queue: Arc::default(),
            failing,
            metrics,
        }
    }

    /// Returns the content of the file, or logs why it is not usable.
    pub(super) fn load(&self, now: SystemTime) -> Option<Found> {
        match self.settings.read(now).transpose()? {
            Ok(found) => Some(found),
            Err(error) => {
                let file = owner_only_file::describe(&self.settings.file);
                tracing::warn!(file, %error, "the key cache is not used");
                // A file that cannot be replaced is a note of the readiness report from the start on.
                if matches!(error, CacheError::Fixed(_)) {
                    self.metrics.key_cache_written(false);
                    self.failing.store(true, Ordering::Relaxed);
                }
                None
            }
        }
    }

    /// Sets the origin of the next fetch, which is then written in any case.
    pub(super) fn set_origin(&mut self, origin: KeysOrigin) {
        self.settings.origin = origin;
    }

    /// Writes the keys and the list in force, in the background: a hanging disk delays no fetch.
    pub(super) fn keep(&self, state: &InstalledKeys, list: Option<&Revocations>, now: SystemTime) {
        // A secret is never written: hmac and a cache exclude each other at the start.
        let content = Content::from_state(&self.settings.origin, state, list, unix_seconds(now));
        if let Some(content) = content
            && self.enqueue(content)
        {
            let this = self.clone();
            tokio::task::spawn_blocking(move || this.write_all());
        }
    }

    /// Returns true if a writer has to be started for this content.
    fn enqueue(&self, content: Content) -> bool {
        let mut queue = self.queue.lock();
        match queue.last.as_deref() {
            Some(last) if content.is_covered_by(last) => return false,
            _ => {}
        }
        let content = Arc::new(content);
        // `last` is set before the write: a failure clears it, so that the next fetch tries again.
        queue.last = Some(Arc::clone(&content));
        queue.next = Some(content);
        // A writer at work takes `next` itself when it is done.
        let needs_writer = !queue.is_writing;
        queue.is_writing = true;
        needs_writer
    }

    fn write_all(&self) {
        while let Some(content) = self.next() {
            let written = self.settings.write(&content);
            self.metrics.key_cache_written(written.is_ok());
            match written {
                Ok(()) => {
                    if self.failing.swap(false, Ordering::Relaxed) {
                        tracing::info!("the key cache was written again");
                    }
                }
                Err(error) => {
                    // The file lacks this content, so the next state is written even if it is equal.
                    self.queue.lock().last = None;
                    self.on_failure(&error);
                }
            }
        }
    }

    fn next(&self) -> Option<Arc<Content>> {
        let mut queue = self.queue.lock();
        // Under one lock with `is_writing`: a content that comes later starts a writer, or is found here.
        let next = queue.next.take();
        queue.is_writing = next.is_some();
        next
    }

    fn on_failure(&self, error: &std::io::Error) {
        if error.kind() != ErrorKind::ResourceBusy {
            // If the file cannot even be marked, a restart cannot replace it either, and does not use it.
            let _ = owner_only_file::mark_outdated(&self.settings.file);
        }
        // Logged once, however long the disk stays full.
        if !self.failing.swap(true, Ordering::Relaxed) {
            let file = owner_only_file::describe(&self.settings.file);
            tracing::warn!(file, %error, "the key cache cannot be written");
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use tempfile::TempDir;

    use super::*;
    use crate::issuers::cache_file::tests::{FETCHED_AT, at, content, named, nameless, settings};
    use crate::issuers::source::auth_server::tests::{ONE, OTHER};
    use crate::telemetry::metrics::TokenCacheCounters;

    fn cache(home: &TempDir) -> KeyCache {
        let metrics = Metrics::new(&TokenCacheCounters::default()).0;
        KeyCache::new(settings(home), metrics, Arc::default())
    }

    #[test]
    fn it_is_written_when_something_changes_and_once_a_minute() {
        let home = tempfile::tempdir().unwrap();
        let cache = cache(&home);
        let (one, both) = (|| named(&[ONE]), || named(&[ONE, OTHER]));
        let is_failing = |keys, tokens: &[&str], seconds, is_due| {
            let content = content(keys, tokens, FETCHED_AT + seconds);
            assert_eq!(cache.enqueue(content), is_due, "{seconds}");
            cache.write_all();
            cache.failing.load(Ordering::Relaxed)
        };
        assert!(!is_failing(one(), &[], 0, true));
        assert!(!is_failing(one(), &[], 1, false));
        assert!(!is_failing(both(), &[], 2, true));
        assert!(!is_failing(both(), &["x"], 3, true));
        assert!(!is_failing(both(), &["x"], 4, false));
        assert!(!is_failing(both(), &["x"], 63, true));
        // The fetches of a server that rejects the application alone bring lists.
        let mut later_list = content(both(), &["x"], FETCHED_AT + 63);
        later_list.revocations.as_mut().unwrap().fetched_at += 50;
        assert!(cache.enqueue(later_list));
        cache.write_all();
        drop(home);
        assert!(!is_failing(both(), &["x"], 64, false));
        assert!(is_failing(both(), &["x"], 123, true));
        assert!(is_failing(both(), &["x"], 124, true), "tried again");
    }

    #[test]
    fn the_last_content_is_the_one_that_stays() {
        let home = tempfile::tempdir().unwrap();
        let cache = cache(&home);
        let of = |tokens: &[&str]| content(nameless(), tokens, FETCHED_AT);
        assert!(cache.enqueue(of(&["x"])));
        cache.write_all();
        assert!(cache.enqueue(of(&["x", "y"])));
        let slow = cache.next().unwrap();
        let last = of(&["x"]);
        assert!(!cache.enqueue(last.clone()), "a writer is under way");
        cache.settings.write(&slow).unwrap();
        cache.write_all();
        let found = cache.load(at(FETCHED_AT)).unwrap();
        assert_eq!(found.revocations, last.revocations);
    }
}
