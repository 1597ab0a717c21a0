//! Who may log in, what they were given, and the sessions that they hold.

pub(crate) mod applications;
pub(crate) mod grants;
pub(crate) mod sessions;
pub(crate) mod users;
