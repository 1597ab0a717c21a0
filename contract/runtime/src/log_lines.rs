//! Log lines on their way out: written by a thread of their own, with all that came meanwhile in one go.
//!
//! A line that is written by the request it is about costs that request a system call, and whoever reads the
//! other end of the pipe a wake-up: more than the rest of a poll for the key. What a process leaves behind
//! that is killed within [`PAUSE`] is lost. Where the reader does not keep up, who logs waits for it; where it
//! does not read at all, lines are dropped and counted: a log that hangs must not stop a program.

use std::io::{self, Write};
use std::mem::take;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tracing::warn;
use tracing_subscriber::fmt::MakeWriter;

/// After each writing. The first line of a while goes out at once, those after it this much later at most.
const PAUSE: Duration = Duration::from_millis(2);
/// Some thousand lines; who logs more than is read waits.
const MOST_BYTES: usize = 1024 * 1024;
/// How long who logs waits for room, and the end of the program for its last lines: longer than a reader
/// takes who reads at all.
const PATIENCE: Duration = Duration::from_millis(100);
const PATIENCE_AT_THE_END: Duration = Duration::from_secs(1);
/// What is kept of the room that a burst took.
const KEPT_BYTES: usize = 16 * 1024;

/// Takes lines; clones share the way out.
#[derive(Debug, Clone)]
pub(crate) struct LogLines(Arc<Shared>);

/// Sends what is left when it is dropped, at the end of the program.
#[derive(Debug)]
#[must_use = "the last lines are written when this is dropped"]
pub struct LogEnd(LogLines);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// There is something to write, or the end has come.
    changed: Condvar,
    /// There is room again, or nothing more is written.
    taken: Condvar,
    /// All lines that were dropped.
    lost: Counter,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Who writes looks again by itself soon: waking it now would be for nothing.
    pausing: bool,
    /// Lines that were dropped since there was room. Somebody has waited in vain for it then, and nobody
    /// else does.
    lost: u64,
    ended: bool,
    /// The last line is written.
    finished: bool,
}

impl Waiting {
    fn is_full(&self) -> bool {
        self.bytes.len() > MOST_BYTES
    }
}

impl LogLines {
    /// Lines that go to `out`; those that are dropped are counted as `lost`.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub(crate) fn to(
        out: impl Write + Send + 'static,
        lost: Counter,
    ) -> io::Result<(Self, LogEnd)> {
        let lines = Self(Arc::new(Shared {
            lost,
            ..Shared::default()
        }));
        let shared = Arc::clone(&lines.0);
        thread::Builder::new()
            .name("log lines".to_owned())
            .spawn(move || shared.write_all_to(out))?;
        Ok((lines.clone(), LogEnd(lines)))
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
                waiting.finished = true;
                self.taken.notify_all();
                return;
            }
            std::mem::swap(&mut waiting.bytes, &mut going_out);
            let lost = take(&mut waiting.lost);
            drop(waiting);
            if lost > 0 {
                // A line like all others, and the first one: nobody was told yet that there is room again.
                warn!(lines = lost, "log lines were dropped: nobody read them");
            }
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
        let no_room =
            |waiting: &mut Waiting| waiting.is_full() && waiting.lost == 0 && !waiting.ended;
        let waited = self
            .0
            .taken
            .wait_timeout_while(self.0.lock(), PATIENCE, no_room);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if waiting.finished {
            return io::stderr().write(line);
        }
        if waiting.is_full() {
            waiting.lost += 1;
            self.0.lost.inc();
            return Ok(line.len());
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
        let shared = &self.0.0;
        shared.lock().ended = true;
        shared.changed.notify_all();
        shared.taken.notify_all();
        let writes = |waiting: &mut Waiting| !waiting.finished;
        // Who waits for a reader that has stopped to read is left behind.
        let _ = shared
            .taken
            .wait_timeout_while(shared.lock(), PATIENCE_AT_THE_END, writes);
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
        let (lines, end) = LogLines::to(Out { written, go_on }, Counter::default()).unwrap();
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
        let lost = Counter::default();
        let (lines, end) = LogLines::to(Slow(sent), lost.clone()).unwrap();
        let line = [b'x'; 1000];
        for _ in 0..5000 {
            lines.make_writer().write_all(&line).unwrap();
        }
        drop((end, lines));
        let pieces: Vec<_> = written.iter().collect();
        assert_eq!(pieces.iter().sum::<usize>(), 5_000_000);
        assert!(pieces.iter().all(|piece| *piece <= MOST_BYTES + 1000));
        assert_eq!(lost.get(), 0);
    }

    #[test]
    fn where_nobody_reads_lines_are_dropped_and_counted_and_neither_who_logs_nor_the_end_hangs() {
        let (written, seen) = mpsc::channel();
        let (_never, go_on) = mpsc::channel();
        let lost = Counter::default();
        let (lines, end) = LogLines::to(Out { written, go_on }, lost.clone()).unwrap();
        let log = || lines.make_writer().write_all(&[b'x'; 1000]).unwrap();
        log();
        assert_eq!(seen.recv().unwrap().len(), 1000);
        let room = MOST_BYTES / 1000 + 1;
        for _ in 0..room + 500 {
            log();
        }
        assert_eq!(lost.get(), 500);
        drop(end);
        log();
        assert_eq!(lost.get(), 501);
    }

    #[test]
    fn lines_are_taken_again_once_somebody_reads() {
        let (written, seen) = mpsc::channel();
        let (allow, go_on) = mpsc::channel();
        let lost = Counter::default();
        let (lines, end) = LogLines::to(Out { written, go_on }, lost.clone()).unwrap();
        let log = |line: &[u8]| lines.make_writer().write_all(line).unwrap();
        log(b"first\n");
        assert_eq!(seen.recv().unwrap(), "first\n");
        log(&vec![b'x'; MOST_BYTES + 1]);
        log(b"dropped\n");
        assert_eq!(lost.get(), 1);
        allow.send(()).unwrap();
        assert_eq!(seen.recv().unwrap().len(), MOST_BYTES + 1);
        log(b"taken\n");
        for _ in 0..2 {
            allow.send(()).unwrap();
        }
        drop(end);
        assert_eq!(seen.recv().unwrap(), "taken\n");
        assert_eq!(lost.get(), 1);
    }
}
