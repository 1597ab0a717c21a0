//! The decision about a token of an unknown key, once its issuer's keys were fetched again.

use postern_contract::rejection::Rejection;

use super::decided::{Decision, Rejected};
use crate::issuers::on_demand::Waited;

/// Decides after each fetch that `wait` waits for; `wait` returns `None` if too many requests wait.
pub(crate) async fn decide_after_fetch<Waiting>(
    wait: impl Fn() -> Waiting,
    decide: impl Fn() -> Result<Decision, Rejected>,
) -> Result<Decision, Rejected>
where
    Waiting: Future<Output = Option<Waited>>,
{
    let unknown = Err(Rejection::TokenKeyUnknown.into());
    // The first fetch may have begun before the key was published.
    for _ in 0..2 {
        let Some(waited) = wait().await else {
            return Err(Rejection::ServerBusy.into());
        };
        let decision = decide();
        if decision != unknown {
            return decision;
        }
        match waited {
            Waited::Decide => return unknown,
            Waited::ComeAgain => return Err(Rejection::AuthKeysUnavailable.into()),
            Waited::WaitAgain => {}
        }
    }
    unknown
}
