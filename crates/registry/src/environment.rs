//! A check for environments that `nacos-sdk` does not support. It reads all variables and panics at
//! one that is not text; it also sets the variables of a file `.env` in the working directory or
//! above, while other threads read them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The name of a file that the client would read too.
const PROPERTIES_FILE: &str = "NACOS_CLIENT_PROPS_FILE_PATH";

/// A reason not to start the registry client here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableEnvironment {
    /// A variable at which the client would panic.
    #[error("the environment variable {0} is not UTF-8, and the registry client reads all of them")]
    NotUtf8(String),
    /// A file that the client would add to the environment.
    #[error("the registry client would read {} into the environment: start in another directory", .0.display())]
    DotEnv(PathBuf),
    /// A file `.env`, whose variables the client would set.
    #[error(
        "{PROPERTIES_FILE} is set: the registry client would read that file into the environment"
    )]
    PropertiesFile,
}

/// Checks variables and working directory.
///
/// # Errors
/// The first [`UnusableEnvironment`].
pub(crate) fn check() -> Result<(), UnusableEnvironment> {
    check_variables(std::env::vars_os())?;
    // Without a working directory there is no file `.env`.
    match std::env::current_dir() {
        Ok(directory) => check_directory(&directory),
        Err(_) => Ok(()),
    }
}

fn check_variables<T: AsRef<OsStr>>(
    variables: impl IntoIterator<Item = (T, T)>,
) -> Result<(), UnusableEnvironment> {
    for (name, value) in variables {
        let (name, value) = (name.as_ref(), value.as_ref());
        if name == PROPERTIES_FILE {
            return Err(UnusableEnvironment::PropertiesFile);
        }
        if name.to_str().is_none() || value.to_str().is_none() {
            let name = name.to_string_lossy().into_owned();
            return Err(UnusableEnvironment::NotUtf8(name));
        }
    }
    Ok(())
}

fn check_directory(directory: &Path) -> Result<(), UnusableEnvironment> {
    let files = directory.ancestors().map(|above| above.join(".env"));
    match files.into_iter().find(|file| file.is_file()) {
        Some(file) => Err(UnusableEnvironment::DotEnv(file)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn variables_have_to_be_text_and_name_no_file() {
        let text = |name| (OsStr::new(name), OsStr::new("x"));
        assert_eq!(check_variables([text("A"), text("B")]), Ok(()));
        let broken = OsStr::from_bytes(b"\xff");
        for pair in [(OsStr::new("A"), broken), (broken, OsStr::new("A"))] {
            assert!(matches!(
                check_variables([pair]),
                Err(UnusableEnvironment::NotUtf8(_))
            ));
        }
        assert_eq!(
            check_variables([text(PROPERTIES_FILE)]),
            Err(UnusableEnvironment::PropertiesFile)
        );
    }

    #[test]
    fn a_file_of_variables_here_or_above_is_rejected() {
        let above = tempfile::tempdir().unwrap();
        let here = above.path().join("here");
        std::fs::create_dir(&here).unwrap();
        assert_eq!(check_directory(&here), Ok(()));
        let file = above.path().join(".env");
        std::fs::write(&file, "").unwrap();
        assert_eq!(
            check_directory(&here),
            Err(UnusableEnvironment::DotEnv(file))
        );
    }
}
