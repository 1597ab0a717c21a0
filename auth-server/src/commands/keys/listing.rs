//! Output of `keys show`, without private halves.

use serde_json::{Value, json};
use wire::explain::report::moment;
use wire::keys::KeyId;
use wire::keys::signing_type::SigningType;

use crate::keys::ring::KeyRing;
use crate::keys::ring::rotation::Role;
use crate::store::location::StoreLocation;

/// The names of a time in JSON and in text.
const SINCE: [&str; 2] = ["signsSince", "signs since"];
const FROM: [&str; 2] = ["signsFrom", "signs from"];
const UNTIL: [&str; 2] = ["listedUntil", "listed until"];

/// A key with its role, and the time of its next or last change.
type Row<'r> = (&'r KeyId, Role, Option<([&'static str; 2], i64)>);

fn rows(ring: &KeyRing) -> impl Iterator<Item = Row<'_>> {
    let since = ring.current_since().map(|time| (SINCE, time));
    let current = (ring.current().id(), Role::Current, since);
    let next = ring.next();
    let next = next.map(|it| (it.pair.id(), Role::Next, Some((FROM, it.signs_from))));
    let retired = ring.retired().iter();
    let retired = retired.map(|it| (it.key.id(), Role::Retired, Some((UNTIL, it.until))));
    std::iter::once(current).chain(next).chain(retired)
}

pub(super) fn as_json(of_type: SigningType, store: &StoreLocation, ring: &KeyRing) -> Value {
    let key = |(kid, role, time): Row<'_>| {
        let mut key = json!({"kid": kid.as_str(), "role": role.as_str()});
        if let Some(([name, _], time)) = time {
            key[name] = moment(time).into();
        }
        key
    };
    let revoked = ring.revoked().iter().map(KeyId::as_str);
    json!({
        "signingType": of_type.as_str(),
        "store": store.to_string(),
        "keys": rows(ring).map(key).collect::<Vec<_>>(),
        "revoked": revoked.collect::<Vec<_>>(),
    })
}

pub(super) fn as_text(of_type: SigningType, store: &StoreLocation, ring: &KeyRing) -> String {
    let mut text = format!("signing type  {of_type}\nstore         {store}");
    for (kid, role, time) in rows(ring) {
        text += &format!("\n{:43}  {:7}", kid.as_str(), role.as_str());
        if let Some(([_, name], time)) = time {
            text += &format!("  {name} {}", moment(time));
        }
    }
    for kid in ring.revoked() {
        text += &format!("\n{:43}  revoked", kid.as_str());
    }
    text
}
