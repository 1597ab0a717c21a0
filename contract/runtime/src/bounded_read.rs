//! The one way to read a file that somebody else writes: never more of it than it may hold, and never
//! for long. Its path may lead to a device without end, to a pipe that nobody writes to, or to a share
//! that hangs.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::mem::take;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use zeroize::{Zeroize, Zeroizing};

/// How long a look may take.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// For the first look at a path: its share may have to wake up, or a program has yet to fetch what it
    /// writes into the pipe.
    at_first: Duration,
    /// A share that is well answers in milliseconds.
    later: Duration,
}

const PATIENCE: Patience = Patience {
    at_first: Duration::from_secs(5),
    later: Duration::from_secs(1),
};
/// A thread that waits for a pipe gives up by itself, a little earlier than it is given up.
const TO_GIVE_UP: Duration = Duration::from_millis(100);

/// What is no regular file has no length: so much is reserved for it.
const UNKNOWN_LENGTH: u64 = 64 * 1024;

/// Every path that was looked at, and the thread that got no further with it. While one does not, no other
/// is begun: a share that hangs does not collect them.
static LOOKED_AT: Mutex<BTreeMap<PathBuf, Option<JoinHandle<()>>>> = Mutex::new(BTreeMap::new());

/// Why nothing was read. The text does not name the file.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// What the operating system said.
    #[error(transparent)]
    System(#[from] io::Error),
    /// There is more than this many bytes.
    #[error("is longer than {} KiB", .0 / 1024)]
    TooLong(u64),
    /// It hangs, or nobody writes into the pipe.
    #[error("reading takes too long: does its share hang, or is it a pipe that nobody writes to?")]
    Late,
}

/// A file that was read whole.
#[derive(Debug)]
pub struct FileContent {
    /// They may be a secret.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Of the file that was read, whatever its path leads to by now.
    pub metadata: Metadata,
}

impl FileContent {
    /// The bytes as text.
    ///
    /// # Errors
    /// Where they are none.
    pub fn into_text(mut self) -> Result<Zeroizing<String>, Unread> {
        match String::from_utf8(take(&mut *self.bytes)) {
            Ok(text) => Ok(Zeroizing::new(text)),
            Err(error) => {
                error.into_bytes().zeroize();
                Err(io::Error::new(ErrorKind::InvalidData, "is not UTF-8").into())
            }
        }
    }
}

/// The whole file, of at most `max_bytes`.
///
/// # Errors
/// [`Unread`]; [`Unread::Late`] at once where the former read of this path still hangs.
pub fn read(path: &Path, max_bytes: u64) -> Result<FileContent, Unread> {
    read_within(PATIENCE, path, max_bytes)
}

fn read_within(patience: Patience, path: &Path, max_bytes: u64) -> Result<FileContent, Unread> {
    in_time(patience, path, move |path, deadline| {
        read_until(deadline, path, max_bytes)
    })
}

/// As [`read`], for a file of text.
///
/// # Errors
/// As [`read`], and for what is no text.
pub fn read_text(path: &Path, max_bytes: u64) -> Result<Zeroizing<String>, Unread> {
    read(path, max_bytes)?.into_text()
}

/// The text of what is no file but a stream of this process's: somebody may be typing.
///
/// # Errors
/// As [`read_text`], apart from [`Unread::Late`].
pub fn text_of(input: impl Read, max_bytes: u64) -> Result<Zeroizing<String>, Unread> {
    let mut text = Zeroizing::new(String::with_capacity(reserved(UNKNOWN_LENGTH, max_bytes)));
    input.take(max_bytes + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max_bytes {
        return Err(Unread::TooLong(max_bytes));
    }
    Ok(text)
}

/// What the operating system knows of the file.
///
/// # Errors
/// As [`read`].
pub fn metadata(path: &Path) -> Result<Metadata, Unread> {
    in_time(PATIENCE, path, |path, _| Ok(fs::metadata(path)?))
}

/// The same of several files, in one look. One that hangs hides nothing of the others.
#[must_use]
pub fn metadata_of(paths: &[PathBuf]) -> Vec<Result<Metadata, Unread>> {
    each_in_time(PATIENCE, paths, |path, _| Ok(fs::metadata(path)?))
}

/// As [`each_in_time`], for one path.
fn in_time<T: Send + 'static>(
    patience: Patience,
    path: &Path,
    look: impl Fn(&Path, Instant) -> Result<T, Unread> + Clone + Send + 'static,
) -> Result<T, Unread> {
    let mut outcomes = each_in_time(patience, &[path.to_owned()], look);
    outcomes.pop().unwrap_or(Err(Unread::Late))
}

/// A path, and how long a look at it may take; where the former one still hangs there is none.
type Due = (PathBuf, Option<Duration>);

/// The outcome of `look` at each of the paths, one after the other on a thread of its own. Where one takes
/// too long, the thread is left behind with it, and another one goes on.
fn each_in_time<T: Send + 'static>(
    patience: Patience,
    paths: &[PathBuf],
    look: impl Fn(&Path, Instant) -> Result<T, Unread> + Clone + Send + 'static,
) -> Vec<Result<T, Unread>> {
    let with_patience = |path: &PathBuf| (path.clone(), patience_for(path, patience));
    let mut due: Vec<Due> = paths.iter().map(with_patience).collect();
    let mut outcomes = Vec::with_capacity(due.len());
    while due.iter().any(|(_, patience)| patience.is_some()) {
        let looked = on_one_thread(&due, look.clone());
        due.drain(..looked.len());
        outcomes.extend(looked);
    }
    outcomes.extend(due.iter().map(|_| Err(Unread::Late)));
    outcomes
}

/// The outcomes up to the first path that takes too long, and with it; one at the least.
fn on_one_thread<T: Send + 'static>(
    due: &[Due],
    look: impl Fn(&Path, Instant) -> Result<T, Unread> + Send + 'static,
) -> Vec<Result<T, Unread>> {
    let (sink, told) = sync_channel(due.len());
    let looked_at = due.to_vec();
    let begun = Builder::new().name("file".to_owned()).spawn(move || {
        for (path, patience) in looked_at {
            let outcome = match patience {
                Some(patience) => look(&path, Instant::now() + patience),
                None => Err(Unread::Late),
            };
            if sink.send(outcome).is_err() {
                // Left behind: another thread is at the rest already.
                return;
            }
        }
    });
    let thread = match begun {
        Ok(thread) => thread,
        Err(error) => return vec![Err(error.into())],
    };
    let mut outcomes = Vec::with_capacity(due.len());
    for (path, patience) in due {
        let outcome = told.recv_timeout(patience.unwrap_or_default() + TO_GIVE_UP);
        match outcome {
            Ok(outcome) => outcomes.push(outcome),
            Err(RecvTimeoutError::Timeout) => {
                leave_behind(path, thread);
                outcomes.push(Err(Unread::Late));
                break;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let ended = io::Error::other("the thread that reads it came to an end");
                outcomes.push(Err(ended.into()));
                break;
            }
        }
    }
    outcomes
}

fn patience_for(path: &Path, patience: Patience) -> Option<Duration> {
    let mut looked_at = LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    match looked_at.get(path) {
        None => {
            looked_at.insert(path.to_owned(), None);
            Some(patience.at_first)
        }
        Some(Some(thread)) if !thread.is_finished() => None,
        Some(_) => Some(patience.later),
    }
}

fn leave_behind(path: &Path, thread: JoinHandle<()>) {
    let mut looked_at = LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    let hangs = looked_at.entry(path.to_owned()).or_default();
    // Where two looks began before either was given up, one of them is enough to wait for.
    if hangs.as_ref().is_none_or(JoinHandle::is_finished) {
        *hangs = Some(thread);
    }
}

fn read_until(deadline: Instant, path: &Path, max_bytes: u64) -> Result<FileContent, Unread> {
    // Without this, opening a pipe waits until somebody writes to it.
    let unhurried = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(unhurried)
        .open(path)?;
    let metadata = file.metadata()?;
    let length = match metadata.len() {
        0 => UNKNOWN_LENGTH,
        length => length,
    };
    let mut bytes = Zeroizing::new(Vec::with_capacity(reserved(length, max_bytes)));
    let mut source = file.take(max_bytes + 1);
    if metadata.is_file() {
        source.read_to_end(&mut bytes)?;
    } else {
        drain(&mut source, &mut bytes, deadline)?;
    }
    if bytes.len() as u64 > max_bytes {
        return Err(Unread::TooLong(max_bytes));
    }
    Ok(FileContent { bytes, metadata })
}

/// At once: growing would leave copies of a secret behind that nobody clears.
fn reserved(length: u64, max_bytes: u64) -> usize {
    usize::try_from(length.min(max_bytes)).unwrap_or_default() + 1
}

/// Reads what comes when it comes, until its end.
fn drain(
    source: &mut io::Take<File>,
    bytes: &mut Vec<u8>,
    deadline: Instant,
) -> Result<(), Unread> {
    loop {
        wait_for(source.get_ref(), deadline)?;
        match source.read_to_end(bytes) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn wait_for(file: &File, deadline: Instant) -> Result<(), Unread> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| Unread::Late)?;
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(Unread::Late),
            Ok(_) => return Ok(()),
            // A signal. A pipe that nobody wrote to yet would read as an empty file.
            Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    use super::*;

    const BRIEF: Patience = Patience {
        at_first: Duration::from_millis(300),
        later: Duration::from_millis(300),
    };

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
            let refused = read_text(&path, 8).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        assert!(matches!(read(home.path(), 8), Err(Unread::System(_))));
        assert!(matches!(
            read(&home.path().join("none"), 8),
            Err(Unread::System(_))
        ));
    }

    #[test]
    fn a_device_without_end_is_too_long() {
        let read = read(Path::new("/dev/zero"), 70_000);
        assert!(matches!(read, Err(Unread::TooLong(70_000))), "{read:?}");
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
            // The reader is at the end of what there is for now.
            thread::sleep(Duration::from_millis(20));
            pipe.write_all(b"two").unwrap();
        });
        assert_eq!(text(&path), "onetwo");
        writing.join().unwrap();
    }

    #[test]
    fn a_pipe_that_nobody_writes_to_is_given_up_until_a_file_takes_its_place() {
        let (_home, path) = pipe();
        for _ in 0..2 {
            let read = read_within(BRIEF, &path, 8);
            assert!(matches!(read, Err(Unread::Late)), "{read:?}");
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, "whole").unwrap();
        // The thread that gave up the pipe may not be quite done.
        let whole = loop {
            match read_text(&path, 8) {
                Err(Unread::Late) => thread::yield_now(),
                read => break read.unwrap(),
            }
        };
        assert_eq!(*whole, "whole");
    }

    /// A look that hangs until it is told to end; says at once that it was begun.
    fn hanging(
        begun: Sender<()>,
    ) -> (
        Sender<()>,
        impl Fn(&Path, Instant) -> Result<(), Unread> + Clone,
    ) {
        let (end, ended) = channel();
        let ended = Arc::new(Mutex::new(ended));
        let look = move |path: &Path, _: Instant| {
            if path.ends_with("that hangs") {
                let _ = begun.send(());
                let _ = ended.lock().unwrap().recv();
            }
            Ok(())
        };
        (end, look)
    }

    #[test]
    fn of_a_share_that_hangs_one_look_waits_and_no_other() {
        let path = Path::new("/a share/that hangs");
        let (sink, begun) = channel();
        let (end, look) = hanging(sink.clone());
        assert!(matches!(in_time(BRIEF, path, look), Err(Unread::Late)));
        let (_end, look) = hanging(sink);
        assert!(matches!(in_time(BRIEF, path, look), Err(Unread::Late)));
        assert_eq!(begun.try_iter().count(), 1, "a second thread hangs");
        end.send(()).unwrap();
        while in_time(BRIEF, path, |_, _| Ok(())).is_err() {
            thread::yield_now();
        }
    }

    #[test]
    fn several_paths_are_looked_at_on_one_thread_until_one_hangs() {
        let one_thread = |paths: &[PathBuf]| {
            let looked = each_in_time(PATIENCE, paths, |_, _| Ok(thread::current().id()));
            let threads: Vec<_> = looked.into_iter().map(Result::unwrap).collect();
            threads.len() == paths.len() && threads.iter().all(|thread| *thread == threads[0])
        };
        let paths = ["/some/a", "/some/that hangs", "/some/b", "/some/c"].map(PathBuf::from);
        assert!(one_thread(&paths));

        let (sink, begun) = channel();
        let (end, look) = hanging(sink);
        // The second time nothing waits for it.
        for _ in 0..2 {
            let looked = each_in_time(BRIEF, &paths, look.clone());
            let came: Vec<bool> = looked.iter().map(Result::is_ok).collect();
            assert_eq!(came, [true, false, true, true]);
            assert!(matches!(looked[1], Err(Unread::Late)));
        }
        assert_eq!(begun.try_iter().count(), 1, "a second thread hangs");
        drop(end);
        while !each_in_time(BRIEF, &paths, |_, _| Ok(()))
            .iter()
            .all(Result::is_ok)
        {
            thread::yield_now();
        }
    }
}
