//! Reads of files that others write, bounded in size, and in time for pipes and devices. A hanging
//! share blocks only the reading thread, which serves no request.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::mem::take;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use zeroize::{Zeroize, Zeroizing};

use crate::files::replaced_file::{self, REMEDY};

/// Counted from the first read: a program may still fetch the text that it writes into the pipe.
const START_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(1);

static FIRST_READ: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Reserved for pipes and devices, which have no length.
const UNKNOWN_LENGTH: u64 = 64 * 1024;

/// A read error. The text does not name the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// An error of the operating system.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A file of more than this many bytes.
    #[error("is longer than {} KiB", .0 / 1024)]
    TooLong(u64),
    /// The writer of a pipe did not finish in time.
    #[error("reading takes too long: is it a pipe without a writer?")]
    TimedOut,
    /// A mount of this file alone, whose path on the host leads to another file now.
    #[error("was replaced or removed under its mount, which leads to the old file: {REMEDY}")]
    Replaced,
}

/// A file that was read whole.
#[derive(Debug)]
pub struct FileContent {
    /// Possibly a secret.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Metadata of the open file, which its path may no longer lead to.
    pub metadata: Metadata,
}

impl FileContent {
    /// Returns the bytes as text.
    ///
    /// # Errors
    /// For bytes that are not UTF-8.
    pub fn into_text(mut self) -> Result<Zeroizing<String>, ReadError> {
        match String::from_utf8(take(&mut *self.bytes)) {
            Ok(text) => Ok(Zeroizing::new(text)),
            Err(error) => {
                error.into_bytes().zeroize();
                Err(io::Error::new(ErrorKind::InvalidData, "is not UTF-8").into())
            }
        }
    }
}

/// Reads the whole file, of at most `max_bytes`.
///
/// # Errors
/// [`ReadError`]
pub fn read(path: &Path, max_bytes: u64) -> Result<FileContent, ReadError> {
    let start_deadline = *FIRST_READ + START_TIMEOUT;
    read_until(
        start_deadline.max(Instant::now() + TIMEOUT),
        path,
        max_bytes,
    )
}

/// Reads a file of text, as [`read`] does.
///
/// # Errors
/// Those of [`read`], and for bytes that are not UTF-8.
pub fn read_text(path: &Path, max_bytes: u64) -> Result<Zeroizing<String>, ReadError> {
    read(path, max_bytes)?.into_text()
}

/// Reads the text of a stream of this process, such as standard input: a user may be typing, so
/// there is no timeout.
///
/// # Errors
/// Those of [`read_text`], except [`ReadError::TimedOut`].
pub fn text_of(input: impl Read, max_bytes: u64) -> Result<Zeroizing<String>, ReadError> {
    let mut text = Zeroizing::new(String::with_capacity(reserved(UNKNOWN_LENGTH, max_bytes)));
    input.take(max_bytes + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max_bytes {
        return Err(ReadError::TooLong(max_bytes));
    }
    Ok(text)
}

fn read_until(deadline: Instant, path: &Path, max_bytes: u64) -> Result<FileContent, ReadError> {
    // Without this, opening a pipe waits for its writer.
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(without_waiting)
        .open(path)?;
    let metadata = file.metadata()?;
    let length = match metadata.len() {
        0 => UNKNOWN_LENGTH,
        length => length,
    };
    let mut bytes = Zeroizing::new(Vec::with_capacity(reserved(length, max_bytes)));
    if replaced_file::note(path, &metadata) {
        return Err(ReadError::Replaced);
    }
    let mut source = file.take(max_bytes + 1);
    if metadata.is_file() {
        source.read_to_end(&mut bytes)?;
    } else {
        drain(&mut source, &mut bytes, deadline)?;
    }
    if bytes.len() as u64 > max_bytes {
        return Err(ReadError::TooLong(max_bytes));
    }
    Ok(FileContent { bytes, metadata })
}

/// Returns the length to reserve at once: growing would leave uncleared copies of a secret.
fn reserved(length: u64, max_bytes: u64) -> usize {
    usize::try_from(length.min(max_bytes)).unwrap_or_default() + 1
}

/// Reads bytes as they come, until the end or `deadline`.
fn drain(
    source: &mut io::Take<File>,
    bytes: &mut Vec<u8>,
    deadline: Instant,
) -> Result<(), ReadError> {
    loop {
        wait_for(source.get_ref(), deadline)?;
        match source.read_to_end(bytes) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn wait_for(file: &File, deadline: Instant) -> Result<(), ReadError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| ReadError::TimedOut)?;
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(ReadError::TimedOut),
            Ok(_) => return Ok(()),
            // A signal. An unwritten pipe would read as an empty file.
            Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;
    use std::thread;

    use super::*;

    const BRIEF: Duration = Duration::from_millis(300);

    fn pipe() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("pipe");
        let made = Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        (home, path)
    }

    fn text(path: &Path) -> String {
        read_text(path, 8).unwrap().to_string()
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        for content in ["", "eight by"] {
            fs::write(&path, content).unwrap();
            assert_eq!(text(&path), content);
        }
        for (content, why) in [(&b"nine byte"[..], "is longer"), (b"\xff", "UTF-8")] {
            fs::write(&path, content).unwrap();
            let rejected = read_text(&path, 8).unwrap_err().to_string();
            assert!(rejected.contains(why), "{rejected}");
        }
        assert!(matches!(read(home.path(), 8), Err(ReadError::System(_))));
        assert!(matches!(
            read(&home.path().join("none"), 8),
            Err(ReadError::System(_))
        ));
    }

    #[test]
    fn a_device_without_end_is_too_long() {
        let read = read(Path::new("/dev/zero"), 70_000);
        assert!(matches!(read, Err(ReadError::TooLong(70_000))), "{read:?}");
        assert_eq!(text(Path::new("/dev/null")), "");
    }

    #[test]
    fn a_pipe_is_read_until_its_writer_is_done() {
        let (_home, path) = pipe();
        let writer = path.clone();
        let writing = thread::spawn(move || {
            use std::io::Write;
            let mut pipe = OpenOptions::new().write(true).open(writer).unwrap();
            pipe.write_all(b"one").unwrap();
            // The reader has read all that is written so far.
            thread::sleep(Duration::from_millis(20));
            pipe.write_all(b"two").unwrap();
        });
        assert_eq!(text(&path), "onetwo");
        writing.join().unwrap();
    }

    #[test]
    fn a_pipe_without_a_writer_is_given_up_for_a_file() {
        let (_home, path) = pipe();
        let read = read_until(Instant::now() + BRIEF, &path, 8);
        assert!(matches!(read, Err(ReadError::TimedOut)), "{read:?}");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "whole").unwrap();
        assert_eq!(text(&path), "whole");
    }
}
