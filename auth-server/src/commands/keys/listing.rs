//! Output of `keys show`, without private halves.

use serde_json::{Value, json};
use wire::explain::report::moment;
use wire::keys::KeyId;

use crate::keys::ring::KeyRing;
use crate::keys::ring::rotation::Role;

/// Returns each key with its role, and the time of its next or last change.
pub(super) fn rows(ring: &KeyRing) -> Vec<Value> {
    let row = |kid: &KeyId, role: Role, name: &str, time: Option<i64>| {
        let mut row = json!({"kid": kid.as_str(), "role": role.as_str()});
        if let Some(time) = time {
            row[name] = moment(time).into();
        }
        row
    };
    let (current, next) = (ring.current().id(), ring.next().into_iter());
    let current = row(current, Role::Current, "signsSince", ring.current_since());
    let next = next.map(|it| row(it.pair.id(), Role::Next, "signsFrom", Some(it.signs_from)));
    let retired = ring.retired().iter();
    let retired =
        retired.map(|it| row(it.key.id(), Role::Retired, "listedUntil", Some(it.until())));
    let revoked = ring.revoked().iter();
    let revoked = revoked.map(|kid| json!({"kid": kid.as_str(), "role": "revoked"}));
    let listed = std::iter::once(current).chain(next).chain(retired);
    listed.chain(revoked).collect()
}
