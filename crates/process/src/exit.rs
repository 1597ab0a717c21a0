//! The end of a program: the kinds of failure, each with its exit code, most of `sysexits.h`, and
//! the one line on standard error with the reason.

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use tracing::subscriber::with_default;

/// The time for the last line: longer than any active reader of standard error takes.
const TIMEOUT: Duration = Duration::from_secs(1);

/// An early end of the program. The text is one line for the operator and holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExitError {
    /// An invalid command line.
    #[error("{0}")]
    Usage(String),
    /// A valid command line with an invalid configuration.
    #[error("{0}")]
    Config(String),
    /// A missing requirement of the program's start, or of a command's check.
    #[error("{0}")]
    Unavailable(String),
    /// An unmet expectation of the command line.
    #[error("{0}")]
    Unmet(String),
    /// A defect of the program itself.
    #[error("{0}")]
    Software(String),
}

impl ExitError {
    /// Rewords the text of the failure.
    #[must_use]
    pub fn reworded(self, words: impl FnOnce(&str) -> String) -> Self {
        match self {
            Self::Usage(text) => Self::Usage(words(&text)),
            Self::Config(text) => Self::Config(words(&text)),
            Self::Unavailable(text) => Self::Unavailable(words(&text)),
            Self::Unmet(text) => Self::Unmet(words(&text)),
            Self::Software(text) => Self::Software(words(&text)),
        }
    }

    /// Returns the exit code for scripts and supervisors.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Unmet(_) => 1,
            Self::Usage(_) => 64,
            Self::Unavailable(_) => 69,
            Self::Software(_) => 70,
            Self::Config(_) => 78,
        }
    }
}

/// True once log lines are JSON: nothing else may be written to standard error then.
static WRITES_JSON: AtomicBool = AtomicBool::new(false);

/// Selects JSON or text as the format of the program's last line.
pub(crate) fn log_as_json(json: bool) {
    WRITES_JSON.store(json, Ordering::Relaxed);
}

/// Converts the result of `main` to its exit code, and prints `error: …` on failure.
#[must_use]
pub fn finish(outcome: Result<(), ExitError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let (code, line) = (failure.code(), one_line(&failure.to_string()));
            write_within(TIMEOUT, move || last_line(code, &line));
            ExitCode::from(code)
        }
    }
}

/// Fails with the first warning, as `--strict` does.
///
/// # Errors
/// [`ExitError::Config`] with the first warning.
fn strictly(warnings: &[String]) -> Result<(), ExitError> {
    match warnings {
        [] => Ok(()),
        [only] => Err(ExitError::Config(format!("--strict: {only}"))),
        [first, more @ ..] => {
            let more = more.len();
            Err(ExitError::Config(format!(
                "--strict: {first} (and {more} more)"
            )))
        }
    }
}

/// Ends a check after its output: prints the result. Overridden keys are warnings that `--strict` accepts.
///
/// # Errors
/// [`ExitError::Config`] with the first warning, where `is_strict`.
pub fn end_check(is_strict: bool, warnings: &[String], overridden: usize) -> Result<(), ExitError> {
    if is_strict {
        strictly(warnings)?;
    }
    let found = match overridden + warnings.len() {
        0 => "no warnings".to_owned(),
        1 => "1 warning".to_owned(),
        many => format!("{many} warnings"),
    };
    let _ = writeln!(std::io::stderr(), "usable, {found}");
    Ok(())
}

/// Writes the last line in the format of the log. A closed standard error must not turn the exit
/// code into a panic's.
fn last_line(exit_code: u8, line: &str) {
    if WRITES_JSON.load(Ordering::Relaxed) {
        // Write the line on this thread: the thread that writes the log has ended.
        let log = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .log_internal_errors(false)
            .with_writer(std::io::stderr)
            .finish();
        with_default(log, || tracing::error!(exit_code, "{line}"));
    } else {
        let _ = writeln!(std::io::stderr(), "error: {line}");
    }
}

/// Runs `write` on a thread and waits for `timeout` at most: a failing program has to end even if
/// standard error is not read.
fn write_within(timeout: Duration, write: impl FnOnce() + Send + 'static) {
    let (done, written) = channel();
    let writer = thread::Builder::new().spawn(move || {
        write();
        let _ = done.send(());
    });
    if writer.is_ok() {
        // The thread is left behind after the timeout: the end of the process ends it.
        let _ = written.recv_timeout(timeout);
    }
}

/// Joins lines, and drops characters that would act on a terminal: messages contain texts of other programs.
#[must_use]
pub fn one_line(text: &str) -> String {
    let words: Vec<&str> = text
        .split(|letter: char| letter.is_whitespace() || letter.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read, pipe};
    use std::sync::mpsc::Receiver;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    /// A full pipe.
    fn full_pipe() -> (PipeReader, PipeWriter) {
        let (reader, mut writer) = pipe().unwrap();
        let filling = writer.try_clone().unwrap();
        rustix::io::ioctl_fionbio(&filling, true).unwrap();
        while writer.write(&[b'x'; 4096]).is_ok() {}
        rustix::io::ioctl_fionbio(&filling, false).unwrap();
        (reader, writer)
    }

    /// Starts a write and returns the receiver of its end.
    fn writing(mut out: impl Write + Send + 'static, timeout: Duration) -> Receiver<()> {
        let (done, written) = channel();
        thread::spawn(move || {
            write_within(timeout, move || {
                let _ = out.write_all(b"error: why\n");
            });
            let _ = done.send(());
        });
        written
    }

    #[test]
    fn the_last_line_is_written_before_the_end_if_it_is_read() {
        let (mut reader, writer) = full_pipe();
        let written = writing(writer, LONG);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("xerror: why\n"), "{}", text.len());
        assert_eq!(written.recv_timeout(LONG), Ok(()));
    }

    #[test]
    fn no_reader_and_no_listener_is_waited_for() {
        let (_unread, writer) = full_pipe();
        let written = writing(writer, Duration::from_millis(20));
        assert_eq!(written.recv_timeout(LONG), Ok(()));
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        assert_eq!(writing(writer, LONG).recv_timeout(LONG), Ok(()));
    }

    #[test]
    fn a_cause_of_several_lines_is_printed_as_one() {
        assert_eq!(one_line("bad file\n  at line 3\n"), "bad file at line 3");
        assert_eq!(one_line("bad \u{1b}[31mfile\u{7}"), "bad [31mfile");
    }
}
