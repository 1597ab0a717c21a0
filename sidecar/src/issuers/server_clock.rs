//! The clock of an issuer's server beside this machine's, by which tokens begin and end.

use parking_lot::Mutex;

/// The default of `--leeway`.
const TOLERATED_SECONDS: u64 = 30;
/// `Date` has whole seconds and takes a while to arrive: a difference at the limit changes sides once.
const RIGHT_AGAIN_SECONDS: u64 = 25;

/// The seconds by which it was ahead at the last response, and true if that is off.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<(i64, bool)>>);

impl ServerClock {
    /// Records a response, and returns true if the clock is off from now on, false if it is right again.
    pub(super) fn seen(&self, ahead: i64) -> Option<bool> {
        let mut last = self.0.lock();
        let was_off = matches!(*last, Some((_, true)));
        let limit = if was_off {
            RIGHT_AGAIN_SECONDS
        } else {
            TOLERATED_SECONDS
        };
        let is_off = ahead.unsigned_abs() > limit;
        *last = Some((ahead, is_off));
        (is_off != was_off).then_some(is_off)
    }

    pub(crate) fn ahead(&self) -> Option<i64> {
        self.0.lock().map(|(ahead, _)| ahead)
    }

    /// Describes a clock that is off.
    pub(super) fn note(&self) -> Option<String> {
        let Some((ahead, true)) = *self.0.lock() else {
            return None;
        };
        let side = if ahead < 0 { "behind" } else { "ahead of" };
        let apart = ahead.unsigned_abs();
        Some(format!("its clock is {apart} s {side} this machine's"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_noted_once_until_it_is_right() {
        let clock = ServerClock::default();
        assert_eq!(clock.ahead(), None);
        for (ahead, change, note) in [
            (30, None, None),
            (
                31,
                Some(true),
                Some("its clock is 31 s ahead of this machine's"),
            ),
            (30, None, Some("its clock is 30 s ahead of this machine's")),
            (-90, None, Some("its clock is 90 s behind this machine's")),
            (25, Some(false), None),
            (-30, None, None),
            (
                -31,
                Some(true),
                Some("its clock is 31 s behind this machine's"),
            ),
        ] {
            assert_eq!(clock.seen(ahead), change, "{ahead}");
            assert_eq!(clock.note().as_deref(), note, "{ahead}");
            assert_eq!(clock.ahead(), Some(ahead));
        }
    }
}
