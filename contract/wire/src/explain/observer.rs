//! Who watches a request being judged: nobody on the hot path, `explain` when somebody asks why.
//!
//! There is one judge. An observer is told what is checked and what came out of it; it decides
//! nothing, and costs nothing where it is [`Unobserved`].

use crate::http::path_patterns::PathPattern;
use crate::keys::VerificationKey;
use crate::rejection::Rejection;

/// Is told about each step, in the order in which it is taken.
pub trait Observer {
    /// Whether a shortcut (an answer remembered from before) would hide steps from somebody.
    const WATCHES: bool;

    /// A check came out so. After a failed one there are no more.
    fn checked(&mut self, check: &'static str, outcome: Result<(), Rejection>);

    /// A check is left out, for this reason.
    fn skipped(&mut self, check: &'static str, why: &'static str);

    /// Something came to light.
    fn learned(&mut self, fact: Fact<'_>);

    /// Tells about a check and hands its outcome on.
    ///
    /// # Errors
    /// The outcome's own.
    fn check<T>(
        &mut self,
        check: &'static str,
        outcome: Result<T, Rejection>,
    ) -> Result<T, Rejection> {
        let verdict = match &outcome {
            Ok(_) => Ok(()),
            Err(rejection) => Err(*rejection),
        };
        self.checked(check, verdict);
        outcome
    }
}

/// What comes to light while a request is judged.
#[derive(Debug, Clone, Copy)]
pub enum Fact<'a> {
    /// The path that the pass list is held against, relative to the context path.
    RelativePath(&'a str),
    /// The pattern of the pass list that matches it.
    PassPattern(&'a PathPattern),
    /// The pattern that matches it of the paths where a token may be missing, as this one's is.
    OptionalPattern(&'a PathPattern),
    /// The request is a CORS preflight of an allowed origin.
    Preflight,
    /// The key whose signature it is.
    SigningKey(&'a VerificationKey),
}

/// Nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unobserved;

impl Observer for Unobserved {
    const WATCHES: bool = false;

    fn checked(&mut self, _check: &'static str, _outcome: Result<(), Rejection>) {}

    fn skipped(&mut self, _check: &'static str, _why: &'static str) {}

    fn learned(&mut self, _fact: Fact<'_>) {}
}
