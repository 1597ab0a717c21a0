//! Log lines on their way out: written by a thread of their own, with all that came meanwhile in one go.
//!
//! A line that is written by the request it is about costs that request a system call, and whoever reads the
//! other end of the pipe a wake-up: more than the rest of a poll for the key. Nothing is lost but what a
//! process leaves behind that is killed within [`PAUSE`]; where the reader does not keep up, who logs waits.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// After each writing. The first line of a while goes out at once, those after it this much later at most.
const PAUSE: Duration = Duration::from_millis(2);
/// Some thousand lines; who logs more than is read waits.
const MOST_BYTES: usize = 1024 * 1024;
/// What is kept of the room that a burst took.
const KEPT_BYTES: usize = 16 * 1024;

/// Takes lines; clones share the way out.
#[derive(Debug, Clone)]
pub(crate) struct LogLines(Arc<Shared>);

/// Sends what is left when it is dropped, at the end of the program.
#[derive(Debug)]
#[must_use = "the last lines are written when this is dropped"]
pub struct LogEnd {
    lines: LogLines,
    writing: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// There is something to write, or the end has come.
    changed: Condvar,
    /// There is room again.
    taken: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Who writes looks again by itself soon: waking it now would be for nothing.
    pausing: bool,
    ended: bool,
}

impl LogLines {
    /// Lines that go to `out`.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub(crate) fn to(out: impl Write + Send + 'static) -> io::Result<(Self, LogEnd)> {
        let lines = Self(Arc::default());
        let shared = Arc::clone(&lines.0);
        let writing = thread::Builder::new()
            .name("log lines".to_owned())
            .spawn(move || shared.write_all_to(out))?;
        let end = LogEnd {
            lines: lines.clone(),
            writing: Some(writing),
        };
        Ok((lines, end))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all_to(&self, mut out: impl Write) {
        let mut going_out = Vec::new();
        loop {
            let waiting = self.lock();
            let idle = |waiting: &mut Waiting| waiting.bytes.is_empty() && !waiting.ended;
            let waiting = self.changed.wait_while(waiting, idle);
            let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
            if waiting.bytes.is_empty() {
                return;
            }
            std::mem::swap(&mut waiting.bytes, &mut going_out);
            drop(waiting);
            self.taken.notify_all();
            // Nobody is left to be told that there is nobody to tell.
            let _ = out.write_all(&going_out).and_then(|()| out.flush());
            going_out.clear();
            going_out.shrink_to(KEPT_BYTES);
            self.pause();
        }
    }

    fn pause(&self) {
        let mut waiting = self.lock();
        waiting.pausing = true;
        let goes_on = |waiting: &mut Waiting| !waiting.ended;
        let paused = self.changed.wait_timeout_while(waiting, PAUSE, goes_on);
        let (mut waiting, _) = paused.unwrap_or_else(PoisonError::into_inner);
        waiting.pausing = false;
    }
}

/// `tracing` writes each event in one call.
impl Write for &LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let full = |waiting: &mut Waiting| waiting.bytes.len() > MOST_BYTES && !waiting.ended;
        let waiting = self.0.taken.wait_while(self.0.lock(), full);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        if waiting.ended {
            return io::stderr().write(line);
        }
        let waits = waiting.bytes.is_empty() && !waiting.pausing;
        waiting.bytes.extend_from_slice(line);
        drop(waiting);
        if waits {
            self.0.changed.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'l> MakeWriter<'l> for LogLines {
    type Writer = &'l LogLines;

    fn make_writer(&'l self) -> &'l LogLines {
        self
    }
}

impl Drop for LogEnd {
    fn drop(&mut self) {
        self.lines.0.lock().ended = true;
        self.lines.0.changed.notify_all();
        self.lines.0.taken.notify_all();
        if let Some(writing) = self.writing.take() {
            let _ = writing.join();
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Tells what each writing held, and goes on when it is allowed to.
    struct Out {
        written: mpsc::Sender<String>,
        go_on: mpsc::Receiver<()>,
    }

    impl Write for Out {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            self.written.send(text).unwrap();
            self.go_on.recv().unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_come_during_a_writing_go_out_together_and_the_last_ones_at_the_end() {
        let (written, seen) = mpsc::channel();
        let (allow, go_on) = mpsc::channel();
        let (lines, end) = LogLines::to(Out { written, go_on }).unwrap();
        let log = |line: &str| lines.make_writer().write_all(line.as_bytes()).unwrap();

        log("one\n");
        assert_eq!(seen.recv().unwrap(), "one\n");
        for line in ["two\n", "three\n", "four\n"] {
            log(line);
        }
        for _ in 0..2 {
            allow.send(()).unwrap();
        }
        drop(end);
        assert_eq!(seen.recv().unwrap(), "two\nthree\nfour\n");
        assert!(seen.recv().is_err(), "nothing is written twice");
    }

    #[test]
    fn who_logs_more_than_is_read_waits_and_loses_nothing() {
        struct Slow(mpsc::Sender<usize>);

        impl Write for Slow {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.send(bytes.len()).unwrap();
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let (sent, written) = mpsc::channel();
        let (lines, end) = LogLines::to(Slow(sent)).unwrap();
        let line = [b'x'; 1000];
        for _ in 0..5000 {
            lines.make_writer().write_all(&line).unwrap();
        }
        drop((end, lines));
        let pieces: Vec<_> = written.iter().collect();
        assert_eq!(pieces.iter().sum::<usize>(), 5_000_000);
        assert!(pieces.iter().all(|piece| *piece <= MOST_BYTES + 1000));
    }
}
