//! Differences between two states of the ring, for the audit lines of every server that sees them.

use postern_token::keys::KeyId;

use super::{KeyRing, ListedKey, Role};
use crate::telemetry::audit::events::{KeyEvent, KeyEventKind};

/// Lists the events between two states; `generated` is the pair made in between, if any.
pub(crate) fn events(
    before: Option<&KeyRing>,
    after: &KeyRing,
    generated: Option<&KeyId>,
) -> Vec<KeyEvent> {
    let event = |kind, kid: &KeyId, at| KeyEvent {
        kind,
        kid: kid.clone(),
        at,
    };
    let mut events = Vec::new();
    for ListedKey { role, key, time } in after.listed() {
        let was = before.and_then(|before| before.role_of(key.id()));
        let (kind, at) = match (role, was) {
            // A key that kept its role had no event.
            _ if was == Some(role) => continue,
            (Role::Current, Some(Role::Next)) => (KeyEventKind::Promoted, None),
            (Role::Current, _) if generated == Some(key.id()) => (KeyEventKind::Generated, None),
            (Role::Current, _) => (KeyEventKind::Adopted, None),
            // The keys that a start finds are no events.
            _ if before.is_none() => continue,
            (Role::Next, _) => (KeyEventKind::Published, time),
            (Role::Retired, _) => (KeyEventKind::Retired, time),
        };
        events.push(event(kind, key.id(), at));
    }
    let Some(before) = before else {
        return events;
    };
    for id in before.retired().iter().map(|retired| retired.key.id()) {
        // A key that left the list without a revocation has outlived its tokens.
        if !after.is_listed(id) && !after.revoked().contains(id) {
            events.push(event(KeyEventKind::Dropped, id, None));
        }
    }
    let revoked = after.revoked().difference(before.revoked());
    events.extend(revoked.map(|id| event(KeyEventKind::Revoked, id, None)));
    events
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::keys::pair::tests::fresh;
    use crate::keys::ring::rotation::RotationPolicy;

    const POLICY: RotationPolicy = RotationPolicy {
        lead: 150,
        keep: 1_000,
        every: None,
    };

    fn names(before: &KeyRing, after: &KeyRing) -> Vec<String> {
        let events = events(Some(before), after, None);
        events
            .iter()
            .map(|event| event.kind.name().to_owned())
            .collect()
    }

    #[test]
    fn a_start_reports_what_it_found() {
        let ring = KeyRing::of(fresh());
        let id = ring.current().id();
        let kind = |generated| events(None, &ring, generated)[0].kind;
        assert_eq!(kind(Some(id)), KeyEventKind::Generated);
        assert_eq!(kind(None), KeyEventKind::Adopted);
    }

    #[test]
    fn a_rotation_is_reported_step_by_step() {
        let start = KeyRing::of(fresh());
        let published = start.clone().publish(fresh(), 0, 150);
        let promoted = published.clone().advance(150, &POLICY);
        let dropped = promoted.clone().advance(1_150, &POLICY);
        assert_eq!(names(&start, &start), [""; 0]);
        assert_eq!(names(&start, &published), ["key_published"]);
        assert_eq!(
            names(&published, &promoted),
            ["key_promoted", "key_retired"]
        );
        assert_eq!(names(&promoted, &dropped), ["key_dropped"]);
    }

    #[test]
    fn a_revocation_is_reported_with_what_replaced_the_key() {
        let start = KeyRing::of(fresh());
        let id = start.current().id().clone();
        let replaced = start.clone().revoke(&id, Some(&fresh()), 0).unwrap();
        assert_eq!(names(&start, &replaced), ["key_adopted", "key_revoked"]);
        let mut retired = start.clone();
        let old = fresh();
        retired.retire(&old, 9);
        let revoked = retired.clone().revoke(old.id(), None, 0).unwrap();
        assert_eq!(names(&retired, &revoked), ["key_revoked"]);
    }
}
