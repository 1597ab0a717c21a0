//! Reads of files that others write, bounded in size. A hanging share blocks only the reading
//! thread, which serves no request.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, BufRead, ErrorKind, Read};
use std::mem::take;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use postern_http::text_encoding::{BYTE_ORDER_MARK, is_utf_16};
use rustix::fs::OFlags;
use zeroize::{Zeroize, Zeroizing};

use crate::files::replaced_file::{self, REMEDY};

/// Characters at the end of a line, which editors and `echo` put after a value.
pub const LINE_END: [char; 2] = ['\r', '\n'];
/// Bytes reserved for a stream, which has no known length.
const UNKNOWN_LENGTH: u64 = 64 * 1024;

const NO_TEXT: &str = "is not UTF-8: it is a text of another encoding, or binary, as DER, PKCS #12 and Java's \
                       keystores are (openssl and keytool convert them)";

/// A read error. The text does not name the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// An error of the operating system.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A file of more than this many bytes.
    #[error("is longer than {} KiB", .0 / 1024)]
    TooLong(u64),
    /// A text as Windows may write it.
    #[error("is UTF-16: it has to be UTF-8")]
    Utf16,
    /// A directory, a pipe or a device, whose read may never end.
    #[error("is not a regular file")]
    NoFile,
    /// A file that other users could have read or changed.
    #[error("{0}")]
    NotPrivate(&'static str),
    /// A file that is mounted alone, whose path on the host leads to another file now.
    #[error("was replaced or removed under its mount, which leads to the old file: {REMEDY}")]
    Replaced,
}

/// A file that was read whole.
#[derive(Debug)]
pub struct FileContent {
    /// The bytes of the file, possibly a secret.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Metadata of the open file, which its path may no longer lead to.
    pub metadata: Metadata,
}

impl FileContent {
    /// Returns the bytes as text.
    ///
    /// # Errors
    /// For bytes that are not UTF-8.
    pub fn into_text(self) -> Result<Zeroizing<String>, ReadError> {
        text_in(self.bytes)
    }
}

/// Reads the whole file, of at most `max_bytes`, without a byte order mark.
///
/// # Errors
/// [`ReadError`]
pub fn read(path: &Path, max_bytes: u64) -> Result<FileContent, ReadError> {
    read_with(OFlags::empty(), path, max_bytes)
}

/// Reads a file as [`read`] does, but opens it with further flags.
pub(super) fn read_with(
    flags: OFlags,
    path: &Path,
    max_bytes: u64,
) -> Result<FileContent, ReadError> {
    // Without `NONBLOCK`, opening a pipe waits for its writer.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((flags | OFlags::NONBLOCK).bits().cast_signed())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(ReadError::NoFile);
    }
    if replaced_file::note(path, &metadata) {
        return Err(ReadError::Replaced);
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(reserved(metadata.len(), max_bytes)));
    // One byte more shows that the file is too long: it may grow after its length was read.
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    remove_mark(&mut bytes, max_bytes)?;
    Ok(FileContent { bytes, metadata })
}

/// Checks the length of the bytes read, and removes a byte order mark: programs on Windows write it, and
/// with it the first line of a file, or a password, would be another.
fn remove_mark(bytes: &mut Vec<u8>, max_bytes: u64) -> Result<(), ReadError> {
    if bytes.len() as u64 > max_bytes {
        return Err(ReadError::TooLong(max_bytes));
    }
    if is_utf_16(bytes) {
        return Err(ReadError::Utf16);
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(())
}

fn text_in(mut bytes: Zeroizing<Vec<u8>>) -> Result<Zeroizing<String>, ReadError> {
    match String::from_utf8(take(&mut *bytes)) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            // The bytes may be a secret in another encoding.
            error.into_bytes().zeroize();
            Err(io::Error::new(ErrorKind::InvalidData, NO_TEXT).into())
        }
    }
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
/// Those of [`read_text`], except [`ReadError::NoFile`].
pub fn text_of(input: impl Read, max_bytes: u64) -> Result<Zeroizing<String>, ReadError> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(reserved(UNKNOWN_LENGTH, max_bytes)));
    input.take(max_bytes + 1).read_to_end(&mut bytes)?;
    remove_mark(&mut bytes, max_bytes)?;
    text_in(bytes)
}

/// Reads the first line of a stream, without its end, as [`text_of`] reads the whole.
///
/// # Errors
/// Those of [`text_of`].
pub fn first_line_of(input: impl BufRead, max_bytes: u64) -> Result<Zeroizing<String>, ReadError> {
    // Mark and line end are removed below, and count no bytes of the line.
    let limit = max_bytes + (BYTE_ORDER_MARK.len() + LINE_END.len()) as u64;
    let mut bytes = Zeroizing::new(Vec::with_capacity(reserved(limit, limit)));
    input.take(limit + 1).read_until(b'\n', &mut bytes)?;
    remove_mark(&mut bytes, limit)?;
    let text = text_in(bytes)?;
    let line = text.trim_end_matches(LINE_END);
    if line.len() as u64 > max_bytes {
        return Err(ReadError::TooLong(max_bytes));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

/// Returns the length to reserve at once: growing would leave uncleared copies of a secret.
fn reserved(length: u64, max_bytes: u64) -> usize {
    usize::try_from(length.min(max_bytes)).unwrap_or_default() + 1
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

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
        fs::write(&path, b"\xef\xbb\xbfmark").unwrap();
        assert_eq!(text(&path), "mark");
        assert_eq!(*text_of(&b"\xef\xbb\xbfmark"[..], 8).unwrap(), "mark");
        for (content, why) in [
            (&b"nine byte"[..], "is longer"),
            (b"\xff", "is not UTF-8"),
            (b"\xff\xfek\0", "is UTF-16"),
            (b"\xfe\xff\0k", "is UTF-16"),
            (b"k\0e\0", "is UTF-16"),
            (b"\0k\0e", "is UTF-16"),
        ] {
            fs::write(&path, content).unwrap();
            for rejected in [read_text(&path, 8), text_of(content, 8)] {
                let rejected = rejected.unwrap_err().to_string();
                assert!(rejected.contains(why), "{rejected}");
            }
        }
        assert!(matches!(
            read(&home.path().join("none"), 8),
            Err(ReadError::System(_))
        ));
    }

    #[test]
    fn what_may_never_end_is_no_file() {
        let home = tempfile::tempdir().unwrap();
        let pipe = home.path().join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for path in [home.path(), &pipe, Path::new("/dev/zero")] {
            let read = read(path, 8);
            assert!(matches!(read, Err(ReadError::NoFile)), "{read:?}");
        }
    }
}
