//! The result of a command, on standard output, where a server prints at most its addresses
//! (`postern_transport::net::listener::announce`).

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;

use crate::exit::ExitError;

/// Writes `text`. A closed pipe is not a failure: the reader may need no more.
///
/// # Errors
/// [`ExitError::Software`] if the text cannot be written, for example to a full disk.
pub fn print(text: &str) -> Result<(), ExitError> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(ExitError::Software(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes `secret` as a line, without joining or buffering, which would copy it. The program keeps no
/// other copy.
///
/// # Errors
/// If the secret cannot be written; a closed pipe is a failure here.
pub fn hand_over(secret: &str) -> std::io::Result<()> {
    let mut stdout = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    stdout.write_all(secret.as_bytes())?;
    stdout.write_all(b"\n")
}
