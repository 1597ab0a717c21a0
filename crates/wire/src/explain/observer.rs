//! Observers of a decision: [`Unobserved`] on the hot path, a recorder for `explain`.
//!
//! The decision is the same with and without an observer. It only receives each step, and costs
//! nothing where it is [`Unobserved`].

use serde::{Deserialize, Serialize};

use crate::http::path_patterns::PathPattern;
use crate::keys::VerificationKey;
use crate::rejection::Rejection;

/// A receiver of each step, in order.
pub trait Observer {
    /// False where nothing is recorded: cached results may then replace the steps.
    const WATCHES: bool;

    /// Records a check. No check follows a failed one.
    fn checked(&mut self, check: &'static str, outcome: Result<(), Rejection>);

    /// Records a check that is left out, with the reason.
    fn skipped(&mut self, check: &'static str, why: &'static str);

    /// Records a fact.
    fn learned(&mut self, fact: Fact<'_>);

    /// Records the cause of a rejection, which `detail` finds only where it is recorded.
    fn explains<T>(
        &mut self,
        outcome: &Result<T, Rejection>,
        detail: impl FnOnce(Rejection) -> Option<String>,
    ) {
        if Self::WATCHES
            && let Err(rejection) = outcome
            && let Some(detail) = detail(*rejection)
        {
            self.learned(Fact::Detail(&detail));
        }
    }

    /// Records a check and returns its outcome.
    ///
    /// # Errors
    /// The error of the outcome.
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

/// A fact found during a decision.
#[derive(Debug, Clone, Copy)]
pub enum Fact<'a> {
    /// The path that is compared with the pass list, relative to the context path.
    RelativePath(&'a str),
    /// The matching pattern of the pass list.
    PassPattern(&'a PathPattern),
    /// The matching pattern of the paths where a token may be missing, for a request without one.
    OptionalPattern(&'a PathPattern),
    /// The request is a CORS preflight of an allowed origin.
    Preflight,
    /// The name of the token header that the token came in.
    TokenHeader(&'a str),
    /// The name of the cookie that holds the token, or that holds no usable one.
    TokenCookie(&'a str),
    /// The name of the issuer that the token's `iss` selects, where there are several.
    Issuer(&'a str),
    /// The key that signed the token.
    SigningKey(&'a VerificationKey),
    /// A rule for the request.
    Rule(&'a RuleFacts),
    /// The member or claim for which a token is rejected, and the setting that changes that.
    Detail(&'a str),
}

/// A rule for the request, and what the token has for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleFacts {
    /// The name of the rule.
    pub name: String,
    /// Its conditions.
    pub needs: String,
    /// The claims of the token that it compares.
    pub found: String,
    /// True if the token satisfies it.
    pub holds: bool,
}

/// The observer that records nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unobserved;

impl Observer for Unobserved {
    const WATCHES: bool = false;

    fn checked(&mut self, _check: &'static str, _outcome: Result<(), Rejection>) {}

    fn skipped(&mut self, _check: &'static str, _why: &'static str) {}

    fn learned(&mut self, _fact: Fact<'_>) {}
}
