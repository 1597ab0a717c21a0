//! The table of attack tokens, and the forge that makes them.
//!
//! One table for two readers: the end-to-end tests send its rows to the programs, `sidecar check` puts them
//! before the rules of a configuration. Nothing here knows the code that is attacked, and every key is
//! made on the spot: no token of the forge is worth anything elsewhere.

pub mod keys;
pub mod template;
pub mod token_forge;
pub mod token_rows;
