//! The steps of a decision, written down.

pub mod observer;
pub mod report;
pub mod unverified;
