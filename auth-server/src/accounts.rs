//! Users and applications, their rights, and the sessions of users.

pub(crate) mod applications;
pub(crate) mod grants;
pub(crate) mod sessions;
pub(crate) mod users;
