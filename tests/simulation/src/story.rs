//! The story of a world, a line an event.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Tells what happens; silent unless it is kept.
#[derive(Clone, Default)]
pub struct Story(Option<Arc<Lines>>);

struct Lines {
    began: Mutex<Option<Instant>>,
    lines: Mutex<Vec<String>>,
}

impl Story {
    #[must_use]
    pub fn kept() -> Self {
        Self(Some(Arc::new(Lines {
            began: Mutex::default(),
            lines: Mutex::default(),
        })))
    }

    /// Adds an event.
    pub fn tell(&self, event: impl FnOnce() -> String) {
        if let Some(kept) = &self.0 {
            let now = Instant::now();
            let began = *kept.began.lock().get_or_insert(now);
            let time = now.duration_since(began).as_secs_f64();
            kept.lines.lock().push(format!("{time:9.3}  {}", event()));
        }
    }

    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let lines = self.0.as_ref().map(|kept| kept.lines.lock().clone());
        lines.unwrap_or_default()
    }
}
