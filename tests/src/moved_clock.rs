//! A clock on the wall that one program alone sees, and that is set while it runs. Its monotonic clock stays.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::process::CommandLine;
use crate::skip::skip;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/moved_clock.c");

/// A library that is loaded into the program, and the file in which it reads by how much the clock is moved.
#[derive(Debug)]
pub struct MovedClock {
    directory: TempDir,
}

impl MovedClock {
    /// The right time, for now. `None` where the library cannot be built or loaded; says so then.
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

    /// What the program's environment has to hold.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        let shown = |path: PathBuf| path.display().to_string();
        [
            ("LD_PRELOAD", shown(self.library())),
            ("MOVED_CLOCK", shown(self.offset())),
        ]
    }

    /// Sets the clock to so many seconds after the right time.
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
