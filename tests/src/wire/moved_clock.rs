//! A wall clock that a single program sees and a test sets. The monotonic clock stays unchanged.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::actors::process::CommandLine;
use crate::skip::skip;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/moved_clock.c");

/// A library that is loaded into the program, and the file with the clock's offset.
#[derive(Debug)]
pub struct MovedClock {
    directory: TempDir,
}

impl MovedClock {
    /// Creates a clock without an offset. Returns `None`, with a SKIP line, where the library
    /// cannot be built or loaded.
    ///
    /// # Panics
    /// In CI where there is no C compiler, or without a temporary directory.
    pub fn new() -> Option<Self> {
        let clock = Self {
            directory: tempfile::tempdir().expect("a directory"),
        };
        let library = clock.library().display().to_string();
        if !cfg!(target_os = "linux") {
            skip("a clock that is set", "run the tests on Linux");
            return None;
        }
        let compiler = CommandLine::new("cc");
        let built = compiler.arguments(["-shared", "-fPIC", "-o", &library, SOURCE, "-ldl"]);
        if built.run().code != Some(0) {
            skip("a clock that is set", "install a C compiler as `cc`");
            return None;
        }
        Some(clock)
    }

    /// Returns the environment variables for the program.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        let text = |path: PathBuf| path.display().to_string();
        [
            ("LD_PRELOAD", text(self.library())),
            ("MOVED_CLOCK", text(self.offset())),
        ]
    }

    /// Sets the clock to this many seconds after the real time.
    ///
    /// # Panics
    /// When its file cannot be written.
    pub fn set(&self, seconds: i64) {
        fs::write(self.offset(), seconds.to_string()).expect("the clock's file");
    }

    fn library(&self) -> PathBuf {
        self.directory.path().join("moved_clock.so")
    }

    fn offset(&self) -> PathBuf {
        self.directory.path().join("seconds")
    }
}
