//! Readiness: one issuer, whichever it is, has its keys, and its revocation list where one is required. An
//! issuer that is away must not take the tokens of the others with it.

use std::sync::atomic::Ordering;
use std::time::Instant;

use postern_contract::rejection::Rejection;
use postern_process::clock::unix_now;
use postern_token::times::moment;
use postern_transport::admin::health::ConditionState;

use super::current::CurrentKeys;
use super::issuer_keys::IssuerKeys;

const NOT_FETCHED: &str = "not fetched yet";
const TOO_OLD: &str = "older than --max-key-age";
const LIST_NOT_FETCHED: &str = "revocation list not fetched yet";
const LIST_TOO_OLD: &str = "revocation list older than --max-revocation-age";
/// The path of the cache is left out: any peer may read this text.
const CACHE_FAILS: &str = "the key cache cannot be written and does not count at a restart";

/// Reports the issuers at `now`, with the age of the keys of each.
pub(crate) fn report(issuers: &IssuerKeys, now: Instant) -> ConditionState {
    let reasons: Vec<_> = issuers
        .iter()
        .map(|issuer| Some(issuer.named(missing(issuer, now)?)))
        .collect();
    let ok = reasons.iter().any(Option::is_none);
    let reasons: Vec<_> = reasons.into_iter().flatten().collect();
    let notes: Vec<_> = issuers
        .fetched()
        .filter_map(|issuer| note(issuer, now))
        .collect();
    ConditionState {
        name: "verification_key",
        ok,
        reason: (!ok).then(|| reasons.join("; ")),
        note: (!notes.is_empty()).then(|| notes.join("; ")),
        warns: issuers.fetched().any(|issuer| warns(issuer)),
    }
}

/// Reports the revocation list from `source`, the server of `keys`, at `now`.
pub(crate) fn list_report(keys: &CurrentKeys, source: &str, now: Instant) -> ConditionState {
    let (mut note, fetched) = match keys.list.load().as_deref() {
        Some(known) => {
            let (entries, age) = (known.list().count(), known.age(now).as_secs());
            let note = format!("{entries} entries, fetched {age} s ago from {source}");
            (note, unix_now().saturating_sub_unsigned(age))
        }
        None => (format!("{NOT_FETCHED} from {source}"), 0),
    };
    // A server that rejects the application alone still sends its list.
    let away = keys.failed().filter(|away| fetched <= away.since);
    let failed = keys.list.failed.load().as_deref().cloned();
    let failed = failed.or_else(|| Some(away?.in_words()));
    if let Some(failed) = &failed {
        note = format!("{note}; {failed}");
        if !keys.requires_revocations() {
            note.push_str("; tokens that end meanwhile are accepted");
        }
    }
    ConditionState::noted("revocation_list", note, failed.is_some())
}

/// Returns true where a person should act on the note.
fn warns(issuer: &CurrentKeys) -> bool {
    let cache_fails = issuer.cache_fails.load(Ordering::Relaxed);
    cache_fails || issuer.failed().is_some() || issuer.clock.note().is_some()
}

/// Returns the reason why tokens of an issuer cannot be verified.
fn missing(keys: &CurrentKeys, now: Instant) -> Option<String> {
    let state = keys.load();
    let rejection = keys.trusted(state.as_deref(), now).err()?;
    Some(match rejection {
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
    let state = issuer.load();
    let age = state.as_ref().map(|state| {
        let from_cache = match state.is_cached() {
            true => ", from the key cache",
            false => "",
        };
        let (keys, age) = (state.keys().names(), state.age(now).as_secs());
        format!("{keys} fetched {age} s ago{from_cache}")
    });
    let failed = issuer.failed().and_then(|failed| {
        let fails = failed.in_words();
        let Some(state) = state.as_ref() else {
            // The failure of the only issuer is the report's `reason` already.
            return issuer.name.is_some().then_some(fails);
        };
        let until = issuer.trusted_until(state.age(now)).map(moment);
        let until = until.unwrap_or_else(|| "a fetch brings others".to_owned());
        Some(format!("{fails}; the keys count until {until}"))
    });
    let cache_fails = issuer.cache_fails.load(Ordering::Relaxed);
    let age = age.or_else(|| issuer.name.as_ref().map(|_| NOT_FETCHED.to_owned()));
    let notes: Vec<_> = age
        .into_iter()
        .chain(failed)
        .chain(issuer.clock.note())
        .chain(cache_fails.then(|| CACHE_FAILS.to_owned()))
        .collect();
    (!notes.is_empty()).then(|| issuer.named(notes.join(", ")))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::sync::Arc;
    use std::time::Duration;

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
        a.set_failed(Some(FailedFetch {
            reason: "away".to_owned(),
            since: 0,
            next: now,
        }));
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
