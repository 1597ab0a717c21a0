//! The current user as controllers and clients see it (contract §2.5).

use serde::{Deserialize, Serialize};

/// Declares the struct from the contract's list, so that names, order and count cannot drift.
macro_rules! user_details {
    ($($field:ident: $name:literal),+ $(,)?) => {
        /// All 27 fields of contract §2.5. In written JSON every field is present, null without a value; in
        /// read JSON fields may be absent.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        #[expect(missing_docs, reason = "the contract gives the fields no other meaning than their names")]
        pub struct CurrentUserDetails {
            $(#[serde(rename = $name)] pub $field: Option<String>,)+
        }

        impl CurrentUserDetails {
            /// The names of the fields, in the contract's order.
            pub const FIELDS: &[&str] = &[$($name),+];

            /// Returns the field of this name; `None` where the contract has no such field.
            pub(crate) fn field_mut(&mut self, name: &str) -> Option<&mut Option<String>> {
                match name {
                    $($name => Some(&mut self.$field),)+
                    _ => None,
                }
            }

            /// Returns the fields that have a value, in the contract's order.
            pub fn present(&self) -> impl Iterator<Item = (&'static str, &str)> {
                [$(($name, self.$field.as_deref())),+]
                    .into_iter()
                    .filter_map(|(name, value)| Some((name, value?)))
            }
        }
    };
}

user_details! {
    id: "id",
    tenant_id: "tenantId",
    client_id: "clientId",
    sign_method: "signMethod",
    nick_name: "nickName",
    avatar: "avatar",
    an_id: "anId",
    an_title: "anTitle",
    telephone: "telephone",
    email: "email",
    account: "account",
    account_secret: "accountSecret",
    status: "status",
    app_id: "appId",
    open_id: "openId",
    user_type: "userType",
    sex: "sex",
    dept_id: "deptId",
    dept_title: "deptTitle",
    post_id: "postId",
    post_title: "postTitle",
    grade: "grade",
    is_super_admin: "isSuperAdmin",
    del_flag: "delFlag",
    can_del: "canDel",
    expire_time: "expireTime",
    other: "other",
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn contract_2_5_all_27_fields_are_present_or_null() {
        let json = serde_json::to_value(CurrentUserDetails::default()).unwrap();
        let members = json.as_object().unwrap();
        assert_eq!(members.len(), 27);
        assert!(members.values().all(serde_json::Value::is_null));
    }
}
