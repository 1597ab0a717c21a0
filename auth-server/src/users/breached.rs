//! A list of breached passwords, in the form in which Have I Been Pwned publishes its own: the SHA-1 of
//! each in hexadecimal on a line, in order, with or without `:COUNT` behind it.
//!
//! The list is larger than memory, so it is searched where it is.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA1_OUTPUT_LEN, digest};
use data_encoding::HEXUPPER_PERMISSIVE;

/// Max length of a line: a hash, a colon and any count.
const MAX_LINE_BYTES: u64 = 128;

type Hash = [u8; SHA1_OUTPUT_LEN];

#[derive(Debug, thiserror::Error)]
pub(crate) enum BreachedListError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("not a list of SHA-1 hashes in hexadecimal, each on a line")]
    NotHashes,
    #[error("its hashes are not in order")]
    NotInOrder,
}

/// Returns true if the list has this password.
///
/// # Errors
/// [`BreachedListError`]: a list that cannot be searched rejects every password.
pub(crate) fn contains(list: &Path, password: &str) -> Result<bool, BreachedListError> {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes());
    let mut sought = Hash::default();
    sought.copy_from_slice(hash.as_ref());
    Search::open(list)?.find(&sought)
}

/// A binary search over the lines that begin in a range of bytes.
struct Search {
    file: BufReader<File>,
    start: u64,
    end: u64,
    /// The nearest hashes that were seen on both sides of the range.
    below: Option<Hash>,
    above: Option<Hash>,
}

impl Search {
    fn open(list: &Path) -> Result<Self, BreachedListError> {
        let file = File::open(list)?;
        let end = file.metadata()?.len();
        // Rejected: after a failed download an empty list would accept every password.
        if end == 0 {
            return Err(BreachedListError::NotHashes);
        }
        Ok(Self {
            file: BufReader::with_capacity(MAX_LINE_BYTES as usize * 2, file),
            start: 0,
            end,
            below: None,
            above: None,
        })
    }

    fn find(mut self, sought: &Hash) -> Result<bool, BreachedListError> {
        while self.start < self.end {
            let middle = self.start + (self.end - self.start) / 2;
            let begin = self.line_from(middle)?;
            if begin >= self.end {
                self.end = middle;
                continue;
            }
            let (hash, length) = self.read_line()?;
            self.check_order(&hash)?;
            if hash == *sought {
                return Ok(true);
            }
            if hash < *sought {
                self.start = begin + length;
                self.below = Some(hash);
            } else {
                self.end = middle;
                self.above = Some(hash);
            }
        }
        Ok(false)
    }

    /// Moves to the first line that begins at `position` or after it.
    fn line_from(&mut self, position: u64) -> Result<u64, BreachedListError> {
        if position == self.start {
            self.file.seek(SeekFrom::Start(position))?;
            return Ok(position);
        }
        self.file.seek(SeekFrom::Start(position - 1))?;
        let skipped = self.raw_line()?.len() as u64;
        Ok(position - 1 + skipped)
    }

    fn read_line(&mut self) -> Result<(Hash, u64), BreachedListError> {
        let line = self.raw_line()?;
        let digits = line.get(..SHA1_OUTPUT_LEN * 2);
        let digits = digits.ok_or(BreachedListError::NotHashes)?;
        let rest = line.get(SHA1_OUTPUT_LEN * 2..).unwrap_or_default();
        let bytes = HEXUPPER_PERMISSIVE.decode(digits);
        let hash = bytes.ok().and_then(|bytes| bytes.try_into().ok());
        match (hash, rest.trim_ascii_end().first()) {
            (Some(hash), None | Some(b':')) => Ok((hash, line.len() as u64)),
            _ => Err(BreachedListError::NotHashes),
        }
    }

    fn raw_line(&mut self) -> Result<Vec<u8>, BreachedListError> {
        let mut line = Vec::new();
        let mut limited = self.file.by_ref().take(MAX_LINE_BYTES);
        limited.read_until(b'\n', &mut line)?;
        if line.len() as u64 == MAX_LINE_BYTES {
            return Err(BreachedListError::NotHashes);
        }
        Ok(line)
    }

    /// Notices a list in another order, among the lines that were read.
    fn check_order(&self, hash: &Hash) -> Result<(), BreachedListError> {
        let is_after = self.below.is_none_or(|below| below < *hash);
        let is_before = self.above.is_none_or(|above| *hash < above);
        if is_after && is_before {
            Ok(())
        } else {
            Err(BreachedListError::NotInOrder)
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::Write;

    use data_encoding::HEXUPPER;

    use super::*;

    fn hash_of(password: &str) -> String {
        HEXUPPER.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes()).as_ref())
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn each_password_of_a_list_is_found_and_no_other() {
        for (count, end) in [(1, "\n"), (2, "\r\n"), (3, ":12\n"), (200, ":7\r\n")] {
            let listed: Vec<String> = (0..count).map(|n| format!("password {n}")).collect();
            let mut hashes: Vec<String> = listed.iter().map(|one| hash_of(one)).collect();
            hashes.sort();
            let text: String = hashes.iter().map(|hash| format!("{hash}{end}")).collect();
            for text in [
                text.clone(),
                text.to_lowercase(),
                text.trim_end().to_owned(),
            ] {
                let list = file(&text);
                for password in &listed {
                    assert!(contains(list.path(), password).unwrap(), "{password}");
                }
                for n in 0..50 {
                    let other = format!("another {n}");
                    assert!(!contains(list.path(), &other).unwrap(), "{other}");
                }
            }
        }
    }

    #[test]
    fn a_file_that_is_no_such_list_is_an_error() {
        let (one, other) = (hash_of("a"), hash_of("b"));
        let (first, last) = if one < other {
            (one, other)
        } else {
            (other, one)
        };
        let twisted = format!("{last}\n{last}\n{first}\n{first}\n");
        let long = "x".repeat(1000);
        for text in [
            "",
            "password\n",
            "\n",
            &first[1..],
            &format!("{first}x\n"),
            &long,
        ] {
            let outcome = contains(file(text).path(), "hush");
            assert!(
                matches!(outcome, Err(BreachedListError::NotHashes)),
                "{text}"
            );
        }
        let outcomes = ["a", "b", "c", "d", "e", "f"];
        let noticed = outcomes.iter().filter(|password| {
            let outcome = contains(file(&twisted).path(), password);
            matches!(outcome, Err(BreachedListError::NotInOrder))
        });
        assert!(noticed.count() > 0);
        assert!(contains(Path::new("/nonexistent"), "a").is_err());
    }
}
