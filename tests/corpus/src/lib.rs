//! The table of attack tokens, and the forge that creates them, for end-to-end tests and unit
//! tests.
//!
//! Nothing here uses the attacked code, and every key is fresh: the tokens are worthless elsewhere.

pub mod fields;
pub mod keys;
pub mod proof_rows;
pub mod template;
pub mod token_forge;
pub mod token_rows;
