//! A writer of log lines on a thread of its own, which writes all waiting lines at once.
//!
//! Requests make no system call for their lines. While the log is not read, lines are dropped and
//! counted: a log that hangs must not stop a program.

use std::io::{self, BufWriter, Write};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use tracing::warn;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// A line has 2 KiB at most, and 300 bytes on average.
const MAX_WAITING_LINES: usize = 4096;
/// The first line after a pause is written at once, lines within this time together.
const PAUSE: Duration = Duration::from_millis(2);
/// One write of a busy log: the size of a pipe.
const BATCH_BYTES: usize = 64 * 1024;

/// One counter for the program's one log.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// The number of log lines that were dropped because the log was not read, as a metric.
#[derive(Debug)]
pub(crate) struct DroppedLines;

impl DroppedLines {
    fn count() -> u64 {
        let dropped = DROPPED.get().map_or(0, ErrorCounter::dropped_lines);
        u64::try_from(dropped).unwrap_or(u64::MAX)
    }
}

impl EncodeMetric for DroppedLines {
    fn encode(&self, encoder: MetricEncoder<'_>) -> std::fmt::Result {
        ConstCounter::new(Self::count()).encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

/// Returns a writer of lines to `out`. The guard waits for the last ones, 1.1 s at most.
pub(crate) fn spawn(out: impl Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
    let batches = Batches {
        out: BufWriter::with_capacity(BATCH_BYTES, out),
        reported: 0,
    };
    let (lines, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_WAITING_LINES)
        .thread_name("log lines")
        .finish(batches);
    DROPPED.get_or_init(|| lines.error_counter());
    (lines, guard)
}

struct Batches<W: Write> {
    out: BufWriter<W>,
    /// Dropped lines that a log line has reported.
    reported: u64,
}

impl<W: Write> Write for Batches<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.out.write(line)
    }

    /// Reports dropped lines before it writes. Called when no line waits, so there is room for the
    /// report.
    fn flush(&mut self) -> io::Result<()> {
        let dropped = DroppedLines::count();
        if dropped > self.reported {
            let lines = dropped - self.reported;
            self.reported = dropped;
            warn!(lines, "log lines were dropped: the log was not read");
        }
        let flushed = self.out.flush();
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
        let (mut lines, guard) = spawn(Out { written, go_on });
        let mut log = |line: &str| lines.write_all(line.as_bytes()).unwrap();

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
    fn lines_that_are_not_read_are_dropped_and_stop_no_thread() {
        let (written, seen) = mpsc::channel();
        let (_never, go_on) = mpsc::channel();
        let (mut lines, guard) = spawn(Out { written, go_on });
        let dropped = lines.error_counter();
        lines.write_all(b"x").unwrap();
        assert_eq!(seen.recv().unwrap(), "x");
        for _ in 0..MAX_WAITING_LINES + 500 {
            lines.write_all(b"x").unwrap();
        }
        assert_eq!(dropped.dropped_lines(), 500);
        drop(guard);
    }
}
