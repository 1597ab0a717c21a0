//! Expectations whose failure shows the whole text.

use crate::actors::process::Finished;

/// Asserts that a text has a part.
#[track_caller]
pub fn has(text: impl AsRef<str>, part: impl AsRef<str>) {
    let (text, part) = (text.as_ref(), part.as_ref());
    assert!(text.contains(part), "no {part:?} in {text}");
}

impl Finished {
    /// Asserts the exit code and a part of what was written to stderr.
    #[track_caller]
    pub fn says(&self, code: i32, part: impl AsRef<str>) {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        has(&self.stderr, part);
    }
}
