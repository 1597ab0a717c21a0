//! `revoke`: adds revocations of tokens to the store while servers run, which publish them after
//! their next poll.

use runtime::process::exit::ExitError;
use secrecy::ExposeSecret;
use wire::explain::unverified::DecodedToken;

use super::store::CommandStore;
use super::{print, print_note};
use crate::applications::AppId;
use crate::cli::revoke::{RevokeArgs, id};
use crate::random;
use crate::revocations::{Revocation, Revoked};
use crate::sessions::refresh_token::SessionId;
use crate::store::Outcome;
use crate::users::UsersLocation;
use crate::users::users_file::{self, Users};

/// Max seconds by which `--before` may be ahead: no clock of a server is further ahead.
const MAX_AHEAD: i64 = 3_600;

pub(crate) async fn run(args: &RevokeArgs) -> Result<(), ExitError> {
    let store = CommandStore::open(&args.store).await?;
    if !store.holds_pair {
        return Err(store.no_pair().into());
    }
    let now = store.now().await?;
    let before = args.before.unwrap_or_else(|| now.saturating_add(1));
    if before > now.saturating_add(MAX_AHEAD) {
        return Err(ExitError::Usage(
            "--before: more than an hour ahead, until which no login could succeed".to_owned(),
        ));
    }
    let revoked = revoked(args, before)?;
    if let Some(note) = unknown(&revoked, args, &store).await? {
        print_note(&note);
    }
    let done = described(&revoked);
    let ended = match &revoked {
        Revoked::Token { id, .. } => end_session(&store, id, now).await?,
        _ => false,
    };
    if !ended {
        let revocation = Revocation::of_time(revoked, before.max(now));
        store.append(&revocation, None, now).await?;
    }
    print_note(
        "the store has it, every server one --store-poll-interval later, every sidecar at its next fetch",
    );
    print(&done)
}

/// Revokes the tokens of an application that was removed. Servers revoke them again when they learn of
/// the removal, because they may issue some until then.
pub(super) async fn end_application(store: &CommandStore, id: &AppId) -> Result<(), ExitError> {
    if !store.holds_pair {
        return Ok(());
    }
    let now = store.now().await?;
    let id = id.to_string();
    let note = format!("{id}: its tokens are revoked");
    let revocation = Revocation::of_application(id, now);
    store.append(&revocation, None, now).await?;
    print_note(&note);
    Ok(())
}

/// Ends the session that has this access token, with the other access tokens of it, in one commit: the
/// session's name alone may be forged. Returns false without one.
async fn end_session(store: &CommandStore, token_id: &str, now: i64) -> Result<bool, ExitError> {
    let Some(session) = SessionId::of_token(token_id) else {
        return Ok(false);
    };
    while let Some(held) = store.sessions().read(session).await? {
        let record = held.record.as_ref().map_err(Clone::clone)?;
        let revocation = record.revocation(session, now);
        let Some(revocation) = revocation.filter(|_| record.has_token(session, token_id)) else {
            return Ok(false);
        };
        let removal = Some(held.removal());
        if store.append(&revocation, removal, now).await? == Outcome::Committed {
            print_note(
                "its session has ended as well, with all access tokens: the refresh token is of no use any more",
            );
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the tokens that a command line names.
fn revoked(args: &RevokeArgs, before: i64) -> Result<Revoked, ExitError> {
    if let Some(text) = &args.jti {
        let id = token_id(text.expose_secret())?;
        return Ok(Revoked::Token { id, user: None });
    }
    if let Some(user) = &args.user {
        let id = user_id(user, args.users.as_ref());
        return Ok(Revoked::User { id, before });
    }
    // clap requires one of the four.
    let app = args.app.as_ref().map(ToString::to_string);
    Ok(
        app.map_or(Revoked::Everyone { before }, |id| Revoked::Application {
            id,
            before,
        }),
    )
}

/// Returns the id of a token: `text` itself, or the `jti` in a whole token, which is not verified.
fn token_id(text: &str) -> Result<String, ExitError> {
    let named = match DecodedToken::of(text) {
        Some(token) => token
            .claims
            .get("jti")
            .and_then(|id| id.as_str().map(str::to_owned)),
        None => Some(text.to_owned()),
    };
    let named = named.and_then(|named| id(&named).ok());
    named.ok_or_else(|| {
        ExitError::Usage("--jti: expected the jti of a token, 1 to 128 characters, or a whole token that has one".to_owned())
    })
}

/// Returns the id of the user of this id or account, and notes what is not certain. A users file that
/// cannot be read does not stop a revocation.
fn user_id(named: &str, users: Option<&UsersLocation>) -> String {
    let escaped = named.escape_debug();
    let Some(UsersLocation::File(path)) = users else {
        print_note(
            "--user is the id of the user (sub, userId), not the account, which --users file:FILE looks up",
        );
        return named.to_owned();
    };
    let file = path.display();
    let read = users_file::read(path).map_err(|error| error.to_string());
    let users = read.and_then(|text| Users::parse(&text).map_err(|error| error.to_string()));
    match users.as_ref().map(|users| users.id_of(named)) {
        Ok(Some(id)) => {
            if id != named {
                print_note(&format!(
                    "{escaped} is an account, of the user {}",
                    id.escape_debug()
                ));
            }
            return id.to_owned();
        }
        Ok(None) => print_note(&format!(
            "no user of {file} has the id or the account {escaped}, which is recorded all the same"
        )),
        Err(error) => print_note(&format!(
            "--users file:{file}: {error}; {escaped} is taken for an id"
        )),
    }
    named.to_owned()
}

/// Returns a note about a token that is not ours, or an application that is not registered.
async fn unknown(
    revoked: &Revoked,
    args: &RevokeArgs,
    store: &CommandStore,
) -> Result<Option<String>, ExitError> {
    if let Revoked::Token { id, .. } = revoked
        && !random::is_token_id(id)
        && SessionId::of_token(id).is_none()
    {
        let id = id.escape_debug();
        return Ok(Some(format!(
            "{id} is the jti of no token of ours; it is recorded all the same"
        )));
    }
    let Some(id) = &args.app else {
        return Ok(None);
    };
    let note = || format!("no application {id} is registered; it is recorded all the same");
    let applications = store.applications().read().await?;
    let is_known = applications.registered_id(id.as_str()).is_some();
    Ok((!is_known).then(note))
}

/// Returns the line that reports a revocation.
fn described(revoked: &Revoked) -> String {
    match revoked {
        Revoked::Token { id, .. } => format!("token {} is revoked", id.escape_debug()),
        Revoked::User { id, .. } => {
            format!("the tokens of user {} are revoked", id.escape_debug())
        }
        Revoked::Application { id, .. } => format!("the tokens of application {id} are revoked"),
        Revoked::Everyone { .. } => "all tokens are revoked".to_owned(),
    }
}
