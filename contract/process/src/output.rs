//! The result of a command, on standard output: the only thing that ever stands there.

use std::io::{ErrorKind, Write};

use crate::exit::Failure;

/// Writes `text`. A reader who has seen enough may close the pipe, and that is no failure.
///
/// # Errors
/// [`Failure::Software`] where it cannot be written, to a full disk for instance.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    written(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

fn written(outcome: std::io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Software(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
