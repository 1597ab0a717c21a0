//! The verification keys: what is trusted now, where it comes from, when it is fetched again.

mod answer;
pub(crate) mod current;
pub(crate) mod refresh;
pub(crate) mod source;
