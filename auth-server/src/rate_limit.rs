//! Limits on what strangers may try: decisions on a clock that the caller brings, in tables that
//! stay small whoever fills them.

mod account_lockout;
mod address_limit;
mod backoff;
mod client_prefix;
mod token_bucket;

use std::num::NonZeroUsize;
use std::time::Duration;

pub(crate) use self::account_lockout::AccountLocks;
pub(crate) use self::address_limit::AddressLimit;
pub(crate) use self::client_prefix::Source;
pub(crate) use self::token_bucket::{Rate, TokenBucket};

/// What a table of attempts holds at most, some megabytes: the entry that was not used for longest
/// makes room. To push one out a stranger has to spend as many guesses on other names, each of them a
/// password check: waiting would have gained him more.
const MAX_ENTRIES: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// Refused for now; the time until an attempt is worth making again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooSoon(pub(crate) Duration);

impl TooSoon {
    /// Whole seconds for `Retry-After`: never 0, which would invite to try at once.
    pub(crate) fn retry_after(self) -> u32 {
        let rounded_up = self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0);
        u32::try_from(rounded_up).unwrap_or(u32::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_rounded_up_and_never_0() {
        for (milliseconds, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (60_000, 60)] {
            let too_soon = TooSoon(Duration::from_millis(milliseconds));
            assert_eq!(too_soon.retry_after(), seconds, "{milliseconds} ms");
        }
    }
}
