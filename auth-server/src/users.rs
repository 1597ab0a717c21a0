//! Who may log in. There is one kind of users so far, the contract's: any name with any password is
//! the same fixed user (contract §4.1 rule 2).

use contract::claims::ExtraInfo;
use contract::login::{LoginRequest, UserInfo};

/// A user that has logged in: what a token says of him (contract §2.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) id: String,
    pub(crate) account: String,
    pub(crate) nick_name: String,
    pub(crate) extra_info: ExtraInfo,
}

const BUILTIN_ID: &str = "1";
const BUILTIN_ACCOUNT: &str = "admin";
const BUILTIN_NICK_NAME: &str = "Administrator";
/// The member user type of contract §2.3 and §2.4.
const MEMBER: &str = "member";

/// The built-in user, whoever asks: a [`LoginRequest`] exists only with both names non-empty.
pub(crate) fn authenticate(_: &LoginRequest) -> User {
    User {
        id: BUILTIN_ID.to_owned(),
        account: BUILTIN_ACCOUNT.to_owned(),
        nick_name: BUILTIN_NICK_NAME.to_owned(),
        extra_info: ExtraInfo {
            user_type: Some(MEMBER.to_owned()),
            ..ExtraInfo::default()
        },
    }
}

impl User {
    /// The `info` block of the login answer (contract §2.3).
    pub(crate) fn info(&self) -> UserInfo {
        let ExtraInfo {
            avatar,
            telephone,
            user_type,
            tenant_id,
            grade,
        } = self.extra_info.clone();
        UserInfo {
            tenant_id,
            telephone,
            user_type,
            avatar,
            nick_name: Some(self.nick_name.clone()),
            grade,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_4_1_rule_2_whoever_logs_in_is_the_fixed_user() {
        let request = |username: &str| LoginRequest {
            username: username.into(),
            password: "p".into(),
        };
        let user = authenticate(&request("alice"));
        assert_eq!(user, authenticate(&request("bob")));
        assert_eq!((&*user.id, &*user.account), ("1", "admin"));
    }

    #[test]
    fn contract_2_3_the_info_block_of_the_built_in_user() {
        let info = authenticate(&LoginRequest {
            username: "a".into(),
            password: "b".into(),
        })
        .info();
        let expected = UserInfo {
            user_type: Some("member".into()),
            nick_name: Some("Administrator".into()),
            ..UserInfo::default()
        };
        assert_eq!(info, expected);
    }
}
