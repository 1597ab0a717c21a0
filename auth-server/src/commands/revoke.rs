//! `revoke`: adds revocations of tokens to the store while servers run, which publish them after
//! their next poll.

use std::slice;

use runtime::exit::Failure;

use super::keys::KeysInStore;
use super::{changed_by, print, print_note};
use crate::cli::revoke::RevokeArgs;
use crate::keys::sync::reconcile::Plan;
use crate::revocations::{KEEP_AFTER_EXPIRY, Revocation, Revoked};
use crate::sessions::MAX_LIFETIME;
use crate::sessions::refresh_token::session_of;

/// Seconds: a server with a clock that is ahead issues tokens of a later time, but hardly of this one.
const MAX_AHEAD: i64 = 3_600;

pub(crate) async fn run(args: &RevokeArgs) -> Result<(), Failure> {
    let store = KeysInStore::open(&args.keys)?;
    let now = store.now().await?;
    let before = args.before.unwrap_or_else(|| now.saturating_add(1));
    if before > now.saturating_add(MAX_AHEAD) {
        return Err(Failure::Usage(
            "--before: more than an hour ahead, until which nobody could log in".to_owned(),
        ));
    }
    let (revoked, done) = revoked(args, before)?;
    let by = changed_by(&args.reason, now);
    let lifetime = match &revoked {
        // A session of the user may begin another token until its end.
        Revoked::User { .. } => args.token_lifetime.get().max(MAX_LIFETIME),
        Revoked::Token { .. } | Revoked::Application { .. } => args.token_lifetime.get(),
    };
    let revocation = Revocation {
        revoked,
        until: before
            .max(now)
            .saturating_add(lifetime.into())
            .saturating_add(KEEP_AFTER_EXPIRY),
        changed_by: Some(by.clone()),
    };
    store
        .update(|ring, _| {
            let revoked = ring
                .clone()
                .revoke_tokens(slice::from_ref(&revocation), now);
            if revoked == ring {
                Plan::Keep(ring)
            } else {
                Plan::Write(revoked)
            }
        })
        .await?;
    if let Revoked::Token { id, .. } = &revocation.revoked
        && let Some(session) = session_of(id)
        && store.end_session(&session).await?
    {
        print_note("its session has ended as well: the refresh token is of no use any more");
    }
    store.note_unfinished_change();
    print_note(&format!("changed by {by}"));
    print_note(
        "the store has it, every server one --store-reread later, every sidecar at its next fetch",
    );
    print(&done)
}

/// Returns the revoked tokens and the line that reports them.
fn revoked(args: &RevokeArgs, before: i64) -> Result<(Revoked, String), Failure> {
    if let Some(id) = args.jti.clone() {
        let done = format!("token {} is revoked", id.escape_debug());
        return Ok((Revoked::Token { id, user: None }, done));
    }
    if let Some(id) = args.user.clone() {
        let done = format!("the tokens of user {} are revoked", id.escape_debug());
        return Ok((Revoked::User { id, before }, done));
    }
    // clap requires one of the three.
    let Some(id) = args.app.as_ref().map(ToString::to_string) else {
        return Err(Failure::Usage(
            "--jti, --user or --app is missing".to_owned(),
        ));
    };
    let done = format!("the tokens of application {id} are revoked");
    Ok((Revoked::Application { id, before }, done))
}
