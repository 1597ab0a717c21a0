//! Readiness: one issuer, whichever it is, has its keys, and its revocation list where one is required. An
//! issuer that is away must not take the tokens of the others with it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use postern_contract::rejection::Rejection;
use postern_token::times::moment;
use postern_transport::admin::health::ConditionState;

use super::current::{CurrentKeys, outage_in_words};
use super::issuer_keys::IssuerKeys;

const NOT_FETCHED: &str = "not fetched yet";
const TOO_OLD: &str = "older than --max-key-age";
const LIST_NOT_FETCHED: &str = "revocation list not fetched yet";
const LIST_TOO_OLD: &str = "revocation list older than --max-revocation-age";
/// The path of the cache is left out: any peer may read this text.
const CACHE_FAILS: &str = "the key cache cannot be written and does not count at a restart";

/// Reports the issuers at `now`, with the age of the keys of each.
pub(crate) fn report(issuers: &IssuerKeys, now: Instant) -> ConditionState {
    let (mut ok, mut reasons) = (false, Vec::new());
    for issuer in issuers.iter() {
        match missing(issuer, now) {
            Some(reason) => reasons.push(issuer.named(reason)),
            None => ok = true,
        }
    }
    let (mut warns, mut notes) = (false, Vec::new());
    for issuer in issuers.fetched() {
        warns |= needs_action(issuer);
        notes.extend(note(issuer, now));
    }
    ConditionState {
        name: "verification_key",
        ok,
        reason: if ok { None } else { Some(reasons.join("; ")) },
        note: if notes.is_empty() {
            None
        } else {
            Some(notes.join("; "))
        },
        warns,
    }
}

/// Reports the revocation list from `source`, the server of `keys`, at `now`.
pub(crate) fn list_report(keys: &CurrentKeys, source: &str, now: Instant) -> ConditionState {
    let (mut note, age) = match keys.list.load().as_deref() {
        Some(known) => {
            let (entries, age) = (known.list().count(), known.age(now));
            let seconds = age.as_secs();
            let note = format!("{entries} entries, fetched {seconds} s ago from {source}");
            (note, age)
        }
        None => (format!("{NOT_FETCHED} from {source}"), Duration::MAX),
    };
    let failed = match (keys.list.failed.load().as_deref(), keys.failed()) {
        (Some(failed), _) => Some(failed.clone()),
        // A server that rejects the application alone still sends its list.
        (None, Some(away)) if age > now.saturating_duration_since(away.began) => {
            Some(outage_in_words(away.since, &away.reason))
        }
        _ => None,
    };
    if let Some(failed) = &failed {
        note = format!("{note}; {failed}");
        if !keys.requires_revocations() {
            note.push_str("; tokens that end meanwhile are accepted");
        }
    }
    ConditionState::noted("revocation_list", note, failed.is_some())
}

/// Returns true where a person should act on the note.
fn needs_action(issuer: &CurrentKeys) -> bool {
    issuer.cache_fails.load(Ordering::Relaxed)
        || issuer.failed().is_some()
        || issuer.clock.note().is_some()
}

/// Returns the reason why tokens of an issuer cannot be verified.
fn missing(keys: &CurrentKeys, now: Instant) -> Option<String> {
    Some(match keys.trusted(keys.load().as_deref(), now).err()? {
        Rejection::AuthKeysStale => TOO_OLD.to_owned(),
        Rejection::RevocationsStale if keys.list.load().is_some() => LIST_TOO_OLD.to_owned(),
        Rejection::RevocationsStale => LIST_NOT_FETCHED.to_owned(),
        _ => match keys.failed() {
            Some(failed) => failed.reason.clone(),
            None => NOT_FETCHED.to_owned(),
        },
    })
}

/// Returns the age of an issuer's keys, and what is wrong with its fetches, clock and cache.
fn note(issuer: &CurrentKeys, now: Instant) -> Option<String> {
    let mut notes = Vec::new();
    let state = issuer.load();
    let is_named = issuer.name.is_some();
    match &*state {
        Some(state) => {
            let from_cache = if state.is_cached() {
                ", from the key cache"
            } else {
                ""
            };
            let (keys, age) = (state.keys().names(), state.age(now).as_secs());
            notes.push(format!("{keys} fetched {age} s ago{from_cache}"));
        }
        None if is_named => notes.push(NOT_FETCHED.to_owned()),
        None => {}
    }
    match (issuer.failed(), &*state) {
        (Some(failed), Some(state)) => {
            let until = match issuer.trusted_until(state.age(now)) {
                Some(until) => moment(until),
                None => "a fetch brings others".to_owned(),
            };
            let fails = outage_in_words(failed.since, &failed.reason);
            notes.push(format!("{fails}; the keys count until {until}"));
        }
        // The failure of the only issuer is the report's `reason` already.
        (Some(failed), None) if is_named => {
            notes.push(outage_in_words(failed.since, &failed.reason));
        }
        _ => {}
    }
    notes.extend(issuer.clock.note());
    if issuer.cache_fails.load(Ordering::Relaxed) {
        notes.push(CACHE_FAILS.to_owned());
    }
    if notes.is_empty() {
        None
    } else {
        Some(issuer.named(notes.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::sync::Arc;

    use postern_token::keys::signing_type::SigningType;
    use postern_token::keys::{KeySet, VerificationKey};

    use super::*;
    use crate::issuers::current::FailedFetch;
    use crate::issuers::revocations::Revocations;
    use crate::issuers::revocations::fetched_list::tests::list_of;
    use crate::issuers::token_cache::TokenCacheConfig;

    const SECRET: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const HOUR: Duration = Duration::from_secs(3600);
    const MINUTE: Duration = Duration::from_secs(60);

    fn keys() -> KeySet {
        KeySet::nameless(VerificationKey::parse(SigningType::Hmac, SECRET).unwrap())
    }

    fn away(began: Instant) -> FailedFetch {
        FailedFetch {
            reason: "away".to_owned(),
            since: 0,
            began,
            next: began,
        }
    }

    #[test]
    fn a_list_fails_with_the_keys_unless_it_came_later() {
        const INSTANT: Duration = Duration::from_millis(1);
        let began = Instant::now() + MINUTE;
        for (fetched, warns) in [(began - INSTANT, true), (began + INSTANT, false)] {
            let current = CurrentKeys::default();
            current.set_failed(Some(away(began)));
            let list = Revocations::new(list_of(SECRET, 1, &[]), &keys(), fetched);
            current.list.install(list);
            for now in [began + 2 * INSTANT, began + HOUR] {
                let report = list_report(&current, "auth", now);
                assert_eq!(report.warns, warns, "{report:?}");
            }
        }
    }

    #[test]
    fn one_issuer_is_needed_and_the_missing_ones_are_named() {
        let now = Instant::now();
        let list_required = |name: &str, required| {
            let keys = CurrentKeys::new(TokenCacheConfig::default(), Some(HOUR), required);
            Arc::new(keys.with_name(Some(name.to_owned())))
        };
        let [a, b] = [list_required("a", None), list_required("b", Some(MINUTE))];
        let issuers = IssuerKeys::new(vec![Arc::clone(&a), Arc::clone(&b)], None);
        let reason = |at| report(&issuers, at).reason;
        let missing = "a: not fetched yet; b: not fetched yet";
        assert_eq!(reason(now).as_deref(), Some(missing));
        a.set_failed(Some(away(now)));
        b.install(keys(), now);
        let missing = "a: away; b: revocation list not fetched yet";
        assert_eq!(reason(now).as_deref(), Some(missing));
        let list = list_of(SECRET, 1, &[]);
        b.list.install(Revocations::new(list, &keys(), now));
        assert_eq!(reason(now), None);
        let missing = "a: away; b: revocation list older than --max-revocation-age";
        assert_eq!(reason(now + HOUR).as_deref(), Some(missing));
        a.install(keys(), now);
        assert_eq!(reason(now + HOUR), None, "its list is not required");
        let missing = "a: older than --max-key-age; b: older than --max-key-age";
        assert_eq!(reason(now + 2 * HOUR).as_deref(), Some(missing));
        let (note, names) = (report(&issuers, now + MINUTE).note, keys().names());
        let failed = "the fetches fail since 1970-01-01T00:00:00Z: away; the keys count until 2";
        let start = format!("a: {names} fetched 60 s ago, {failed}");
        let note = note.unwrap();
        assert!(note.starts_with(&start), "{note}");
        let end = format!("; b: {names} fetched 60 s ago");
        assert!(note.ends_with(&end), "{note}");
    }
}
