//! Output of `keys show`, without private halves.

use std::fmt;

use serde::Serialize;
use wire::explain::report::moment;
use wire::keys::signing_type::SigningType;

use crate::keys::ring::KeyRing;
use crate::keys::ring::rotation::Role;
use crate::store::location::StoreLocation;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listing {
    signing_type: &'static str,
    store: String,
    keys: Vec<Key>,
    revoked: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Key {
    kid: String,
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    signs_since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signs_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listed_until: Option<String>,
}

impl Key {
    fn new(kid: &impl fmt::Display, role: Role) -> Self {
        Self {
            kid: kid.to_string(),
            role: role.as_str(),
            signs_since: None,
            signs_from: None,
            listed_until: None,
        }
    }
}

impl Listing {
    pub(super) fn of(signing_type: SigningType, store: &StoreLocation, ring: &KeyRing) -> Self {
        let current = Key {
            signs_since: ring.current_since().map(moment),
            ..Key::new(ring.current().id(), Role::Current)
        };
        let next = ring.next().map(|next| Key {
            signs_from: Some(moment(next.signs_from)),
            ..Key::new(next.pair.id(), Role::Next)
        });
        let retired = ring.retired().iter().map(|retired| Key {
            listed_until: Some(moment(retired.until)),
            ..Key::new(retired.key.id(), Role::Retired)
        });
        Self {
            signing_type: signing_type.as_str(),
            store: store.to_string(),
            keys: std::iter::once(current)
                .chain(next)
                .chain(retired)
                .collect(),
            revoked: ring.revoked().iter().map(ToString::to_string).collect(),
        }
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "signing type  {}", self.signing_type)?;
        write!(f, "store         {}", self.store)?;
        for key in &self.keys {
            write!(f, "\n{:43}  {:7}", key.kid, key.role)?;
            for (what, time) in [
                ("signs since", &key.signs_since),
                ("signs from", &key.signs_from),
                ("listed until", &key.listed_until),
            ] {
                if let Some(time) = time {
                    write!(f, "  {what} {time}")?;
                }
            }
        }
        for kid in &self.revoked {
            write!(f, "\n{kid:43}  revoked")?;
        }
        Ok(())
    }
}
