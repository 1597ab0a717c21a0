//! The built-in user: any name with any password is this user (contract §4.1 rule 2).

use postern_contract::login::LoginRequest;
use postern_token::claims::ExtraInfo;

use super::{MEMBER, PresentUser, User, UserStore};
use crate::accounts::grants::Grant;

pub(crate) const ID: &str = "1";
pub(crate) const ACCOUNT: &str = "admin";
const NICK_NAME: &str = "Administrator";

#[derive(Debug)]
pub(crate) struct BuiltinUser;

impl UserStore for BuiltinUser {
    /// Always succeeds: a [`LoginRequest`] exists only with a name and a password that are not
    /// empty.
    fn authenticate(&self, request: &LoginRequest) -> Option<PresentUser> {
        self.present(&request.username)
    }

    fn present(&self, _: &str) -> Option<PresentUser> {
        let user = User {
            id: ID.to_owned(),
            account: ACCOUNT.to_owned(),
            nick_name: NICK_NAME.to_owned(),
            extra_info: ExtraInfo {
                user_type: Some(MEMBER.to_owned()),
                ..ExtraInfo::default()
            },
            grant: Grant::default(),
        };
        Some(PresentUser {
            user,
            credentials: String::new(),
        })
    }

    fn is_user(&self, name: &str) -> bool {
        [ID, ACCOUNT].contains(&name)
    }

    fn checks_passwords(&self) -> bool {
        false
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use postern_contract::login::UserInfo;

    use super::*;

    pub(crate) fn builtin_user() -> User {
        BuiltinUser.authenticate(&request("a")).unwrap().user
    }

    fn request(username: &str) -> LoginRequest {
        LoginRequest {
            username: username.into(),
            password: "p".into(),
        }
    }

    #[test]
    fn contract_2_3_the_info_block_of_the_built_in_user() {
        let expected = UserInfo {
            user_type: Some("member".into()),
            nick_name: Some("Administrator".into()),
            ..UserInfo::default()
        };
        assert_eq!(builtin_user().info(), expected);
    }
}
