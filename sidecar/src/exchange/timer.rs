//! The single timer of a connection or of a stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

/// Timer with a deadline that may move with every read. An armed timer that fires early enough is
/// kept: arming costs more than one unneeded wake-up a minute.
#[derive(Default)]
pub(crate) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Completes once `deadline` has passed.
    pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self
            .0
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}
