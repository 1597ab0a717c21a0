//! Permits of requests in flight: one HTTP/2 connection carries many requests, and each may take a
//! file descriptor towards the service.

use std::net::IpAddr;
use std::pin::pin;
use std::time::Instant;

use parking_lot::Mutex;
use postern_process::logs::once_a_minute::OnceAMinute;
use postern_process::logs::sanitize::LogText;
use postern_transport::net::shares::{Holder, Share, Shares};
use tracing::field::display;

/// The permits, which users and addresses share.
#[derive(Debug)]
pub(crate) struct InFlight {
    max: usize,
    permits: Shares,
    /// Time of the last warning: a client whose share is full is rejected many times in a row.
    warned: Mutex<OnceAMinute>,
}

impl InFlight {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            permits: Shares::new(max),
            warned: Mutex::default(),
        }
    }

    /// Completes `work`, with a permit if it has to wait; `None` if it has to wait without a holder, or
    /// without a permit for the holder.
    pub(crate) async fn while_waiting<T>(
        &self,
        holder: Option<Holder>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        let permit = async { self.take(holder?).await };
        let _permit = tokio::select! {
            // Work that needs no wait completes without a permit.
            biased;
            done = &mut work => return Some(done),
            permit = permit => permit?,
        };
        // The permit is kept until the work is done.
        Some(work.await)
    }

    /// Takes a permit; `None` if the holder has its share, or all are taken for a while.
    pub(crate) async fn take(&self, holder: Holder) -> Option<Share> {
        self.permits.take(holder).await
    }

    /// Logs a client that was turned away. Its user is decoded only for a line that is due.
    pub(crate) fn warn(&self, client: Option<IpAddr>, user: impl FnOnce() -> Option<String>) {
        if self.warned.lock().is_due(Instant::now()) {
            let (max, free, client) = (self.max, self.permits.free(), client.map(display));
            let user = user();
            let user = user.as_deref().map(LogText).map(display);
            tracing::warn!(
                client,
                user,
                max_requests = max,
                free,
                "a client was turned away: it holds its share of --max-requests, \
                 or no place was free in time"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_user_is_decoded_only_for_a_line_that_is_due() {
        let (in_flight, decoded) = (InFlight::new(1), Cell::new(0));
        for _ in 0..3 {
            in_flight.warn(None, || {
                decoded.set(decoded.get() + 1);
                None
            });
        }
        assert_eq!(decoded.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn work_takes_a_permit_only_while_it_waits() {
        let (in_flight, holder) = (InFlight::new(1), Holder::for_address(None));
        let taken = in_flight.take(holder).await;
        for holder in [Some(holder), None] {
            assert_eq!(in_flight.while_waiting(holder, async { 1 }).await, Some(1));
            let waiting = in_flight.while_waiting(holder, tokio::task::yield_now());
            assert_eq!(waiting.await, None);
        }
        drop(taken);
        let waiting = in_flight.while_waiting(Some(holder), async {
            tokio::task::yield_now().await;
            assert!(in_flight.take(holder).await.is_none());
        });
        assert_eq!(waiting.await, Some(()));
        assert!(in_flight.take(holder).await.is_some());
    }
}
