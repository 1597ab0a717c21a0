//! Output of `keys show`, without private halves.

use serde_json::{Value, json};
use wire::explain::report::moment;

use crate::keys::ring::{KeyRing, Role};

/// Returns each key with its role, and the time of its next or last change.
pub(super) fn rows(ring: &KeyRing) -> Vec<Value> {
    let listed = ring.listed().map(|it| {
        let mut row = json!({"kid": it.key.id().as_str(), "role": it.role.name()});
        if let Some(time) = it.time {
            let name = match it.role {
                Role::Current => "signsSince",
                Role::Next => "signsFrom",
                Role::Retired => "listedUntil",
            };
            row[name] = moment(time).into();
        }
        row
    });
    let revoked = ring.revoked().iter();
    let revoked = revoked.map(|kid| json!({"kid": kid.as_str(), "role": "revoked"}));
    listed.chain(revoked).collect()
}
