//! The recorded steps of a decision.

pub mod observer;
pub mod report;
pub mod unverified;
