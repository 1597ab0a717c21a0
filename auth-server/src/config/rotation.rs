//! Rotation settings, checked against the time that keys take to reach every verifier.

use postern_process::exit::ExitError;
use postern_token::keys::signing_type::SigningType;

use super::MAX_AGE_SECONDS;
use crate::cli::ServeArgs;
use crate::keys::ring::rotation::{RotationPolicy, SIDECAR_LEEWAY_SECONDS};

/// A sidecar fetches the keys at second 0 of every minute (contract §8).
const POLL_SECONDS: i64 = 60;
/// Margin for clock differences and slow responses.
const MARGIN_SECONDS: i64 = 15;
/// A sidecar reads 64 KiB of keys; even far below that a schedule is a mistake.
const MAX_KEYS: i64 = 32;

/// Returns the policy of the flags.
///
/// # Errors
/// A schedule that cannot be kept.
pub(super) fn policy(args: &ServeArgs) -> Result<RotationPolicy, ExitError> {
    let policy = RotationPolicy {
        lead: args.keys.lead.rotation_lead.get().into(),
        // The last token of a key is signed by the server that reads the next key last, one poll
        // late, and is accepted until its lifetime and the leeway are over.
        keep: i64::from(args.tokens.token_lifetime.get())
            + SIDECAR_LEEWAY_SECONDS
            + i64::from(args.keys.store_poll_interval.get()),
        every: args
            .keys
            .rotate_every
            .limit()
            .map(|every| every.as_secs().cast_signed()),
    };
    match problem(args, &policy) {
        Some(problem) => Err(ExitError::Config(format!("--rotate-every: {problem}"))),
        None => Ok(policy),
    }
}

fn problem(args: &ServeArgs, policy: &RotationPolicy) -> Option<String> {
    let every = policy.every?;
    if args.keys.signing.signing_type == SigningType::Hmac {
        return Some("a shared secret cannot be announced, so it is not rotated".to_owned());
    }
    if every <= policy.lead {
        return Some(format!(
            "has to be longer than --rotation-lead, {}",
            args.keys.lead.rotation_lead
        ));
    }
    // A key stays published until the last token that it signed has expired.
    match policy.keep / every {
        ..=MAX_KEYS => None,
        keys => Some(format!(
            "{keys} keys would be valid at a time: rotate less often, or shorten --token-lifetime"
        )),
    }
}

/// Returns the shortest lead with which every verifier knows a key before it signs: one poll of the store,
/// the maximum age in caches, a sidecar's poll, and the margin (30 + 15 + 60 + 15 seconds by default).
///
/// The default `--rotation-lead` of 150 seconds leaves 30 for a retry. A sidecar whose polls failed
/// for longer fetches the unknown key on demand.
pub(crate) fn shortest_lead(store_poll_interval: u32) -> i64 {
    i64::from(store_poll_interval) + MAX_AGE_SECONDS + POLL_SECONDS + MARGIN_SECONDS
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::super::tests::args;
    use super::*;

    fn serve(flags: &str) -> Box<ServeArgs> {
        args(&flags.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn by_default_nothing_rotates_and_the_lead_is_long_enough() {
        let policy = policy(&serve("")).unwrap();
        assert_eq!(
            policy,
            RotationPolicy {
                lead: 150,
                keep: 18_060,
                every: None
            }
        );
        assert!(policy.lead >= shortest_lead(30));
    }

    #[test]
    fn a_schedule_that_cannot_be_kept_is_rejected() {
        for (flags, part) in [
            ("--rotate-every 150", "longer than --rotation-lead, 150s"),
            ("--rotate-every 200", "90 keys"),
            ("--rotate-every 86400 --signing-type hmac", "shared secret"),
        ] {
            let line = policy(&serve(flags)).unwrap_err().to_string();
            assert!(
                line.starts_with("--rotate-every: ") && line.contains(part),
                "{line}"
            );
        }
        assert!(policy(&serve("--rotate-every 86400")).is_ok());
    }
}
