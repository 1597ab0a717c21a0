//! A writer of log lines on a thread of its own, which writes all waiting lines at once.
//!
//! Requests make no system call for their lines. While the log is not read, lines are dropped and
//! counted: a log that hangs must not stop a program. Audit lines have room of their own, which no
//! other line takes.

use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tracing::{Metadata, warn};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;

/// Lines in the queue; a line has 2 KiB at most, and 300 bytes on average.
const MAX_WAITING_LINES: usize = 4096;
/// Further lines in the queue, for audit lines alone.
const MAX_WAITING_AUDIT_LINES: usize = 4096;
const AUDIT: &str = "audit";
/// The first line after a pause is written at once, lines within this time together.
const PAUSE: Duration = Duration::from_millis(2);
/// The size of one write of a busy log, which is the size of a pipe.
const BATCH_BYTES: usize = 64 * 1024;

crate::metrics! {
    /// Lines of the program's one log that were not written.
    pub struct DroppedLines {
        /// Log lines that were dropped because their reader was too slow
        log_lines_dropped: Counter,
        /// Audit lines among the dropped log lines
        audit_lines_dropped: Counter,
    }
}

/// The number of dropped lines of this process.
pub static DROPPED: LazyLock<DroppedLines> = LazyLock::new(DroppedLines::default);

/// Returns a writer of lines to `out`. The guard waits until the last lines are written, 1.1 s at most.
pub fn spawn(out: impl Write + Send + 'static) -> (LogLines, WorkerGuard) {
    let waiting = Arc::<AtomicUsize>::default();
    let (queue, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_WAITING_LINES + MAX_WAITING_AUDIT_LINES)
        .thread_name("log lines")
        .finish(Batches {
            out: BufWriter::with_capacity(BATCH_BYTES, out),
            reported: 0,
            waiting: Arc::clone(&waiting),
        });
    (LogLines { queue, waiting }, guard)
}

/// The sending end of the queue to the thread that writes the lines.
#[derive(Debug)]
pub struct LogLines {
    queue: NonBlocking,
    /// Lines in the queue.
    waiting: Arc<AtomicUsize>,
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> LogLine<'a> {
        LogLine {
            lines: self,
            is_audit: false,
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> LogLine<'a> {
        LogLine {
            lines: self,
            is_audit: metadata.target() == AUDIT,
        }
    }
}

/// A line on its way into the queue.
#[derive(Debug)]
pub struct LogLine<'a> {
    lines: &'a LogLines,
    is_audit: bool,
}

impl Write for LogLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Other lines leave the second half of the queue to audit lines.
        let max = if self.is_audit {
            MAX_WAITING_LINES + MAX_WAITING_AUDIT_LINES
        } else {
            MAX_WAITING_LINES
        };
        let one_more = |waiting| (waiting < max).then_some(waiting + 1);
        let relaxed = Ordering::Relaxed;
        // Count waiting lines here, because the queue's own limit does not distinguish audit lines.
        if self
            .lines
            .waiting
            .fetch_update(relaxed, relaxed, one_more)
            .is_ok()
        {
            return self.lines.queue.clone().write(line);
        }
        DROPPED.log_lines_dropped.inc();
        DROPPED.audit_lines_dropped.inc_by(self.is_audit.into());
        // Report success even for a dropped line: on an error the subscriber writes to standard error itself.
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Batches<W: Write> {
    out: BufWriter<W>,
    /// Dropped lines that a log line has reported.
    reported: u64,
    waiting: Arc<AtomicUsize>,
}

impl<W: Write> Write for Batches<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    /// Takes a whole line out of the queue.
    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.out.write_all(line)
    }

    /// Reports dropped lines before it writes. Called when no line waits, so there is room for the
    /// report.
    fn flush(&mut self) -> io::Result<()> {
        let dropped = DROPPED.log_lines_dropped.get();
        if dropped > self.reported {
            let lines = dropped - self.reported;
            self.reported = dropped;
            warn!(lines, "log lines were dropped: the log was not read");
        }
        let flushed = self.out.flush();
        // Lines that come during the pause are written together, with one system call.
        thread::sleep(PAUSE);
        flushed
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A writer that forwards each write, and waits for permission to continue.
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
    fn lines_that_come_during_a_writing_go_out_together() {
        let (written, seen) = mpsc::channel();
        let (allow, go_on) = mpsc::channel();
        let (lines, guard) = spawn(Out { written, go_on });
        let log = |line: &str| lines.make_writer().write_all(line.as_bytes()).unwrap();

        log("one\n");
        assert_eq!(seen.recv().unwrap(), "one\n");
        for line in ["two\n", "three\n", "four\n"] {
            log(line);
        }
        for _ in 0..2 {
            allow.send(()).unwrap();
        }
        drop(guard);
        assert_eq!(seen.recv().unwrap(), "two\nthree\nfour\n");
        assert!(seen.recv().is_err(), "nothing is written twice");
    }

    #[test]
    fn unread_lines_are_dropped_and_leave_room_for_audit_lines() {
        let (written, seen) = mpsc::channel();
        let (_never, go_on) = mpsc::channel();
        let (lines, guard) = spawn(Out { written, go_on });
        let log = |is_audit| {
            let mut line = LogLine {
                lines: &lines,
                is_audit,
            };
            line.write_all(b"x").unwrap();
        };
        log(false);
        assert_eq!(seen.recv().unwrap(), "x");
        for (is_audit, lines, dropped) in [
            (false, MAX_WAITING_LINES + 500, [500, 0]),
            (true, MAX_WAITING_AUDIT_LINES, [500, 0]),
            (true, 7, [507, 7]),
            (false, 1, [508, 7]),
        ] {
            (0..lines).for_each(|_| log(is_audit));
            let counts = [&DROPPED.log_lines_dropped, &DROPPED.audit_lines_dropped];
            assert_eq!(counts.map(Counter::get), dropped);
        }
        drop(guard);
    }
}
