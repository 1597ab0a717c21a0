//! `revoke`: adds revocations of tokens to the store while servers run, which publish them after
//! their next poll.

use std::slice;

use runtime::process::exit::ExitError;
use secrecy::ExposeSecret;
use wire::explain::unverified::DecodedToken;

use super::application::is_registered;
use super::keys::KeysInStore;
use super::{changed_by, print, print_note};
use crate::applications::AppId;
use crate::changed_by::ChangedBy;
use crate::cli::revoke::{RevokeArgs, id};
use crate::cli::store::StoreArgs;
use crate::keys::update::Plan;
use crate::revocations::{Revocation, Revoked, end_of_tokens};
use crate::sessions::MAX_LIFETIME;
use crate::sessions::refresh_token::SessionId;
use crate::users::UsersLocation;
use crate::users::users_file::{self, Users};

/// Max seconds by which `--before` may be ahead: no clock of a server is further ahead.
const MAX_AHEAD: i64 = 3_600;
/// Seconds: the contract's lifetime of a token. Servers whose tokens live longer keep the entry longer.
const TOKEN_LIFETIME: i64 = 18_000;

/// Tokens that a command line names.
enum Named {
    Token(String),
    User(String),
    Application(AppId),
}

pub(crate) async fn run(args: &RevokeArgs) -> Result<(), ExitError> {
    let named = named(args)?;
    let store = KeysInStore::of_its_type(&args.store).await?;
    let now = store.now().await?;
    let before = args.before.unwrap_or_else(|| now.saturating_add(1));
    if before > now.saturating_add(MAX_AHEAD) {
        return Err(ExitError::Usage(
            "--before: more than an hour ahead, until which no login could succeed".to_owned(),
        ));
    }
    if let Some(note) = unknown(&named, args).await? {
        print_note(&note);
    }
    let (revoked, done) = revoked(named, before);
    let by = changed_by(&args.reason, now);
    let lifetime = match &revoked {
        // A session of the user may begin another token until its end.
        Revoked::User { .. } => args.token_lifetime.get().max(MAX_LIFETIME),
        Revoked::Token { .. } | Revoked::Application { .. } => args.token_lifetime.get(),
    };
    let revocation = Revocation {
        revoked,
        until: end_of_tokens(before.max(now), lifetime.into()),
    };
    record(&store, slice::from_ref(&revocation), &by, now).await?;
    if let Revoked::Token { id, .. } = &revocation.revoked
        && let Some(session) = SessionId::of_token(id)
    {
        end_session(&store, (session, id), &by, now).await?;
    }
    print_note(&format!("changed by {by}"));
    print_note(
        "the store has it, every server one --store-poll-interval later, every sidecar at its next fetch",
    );
    print(&done)
}

/// Revokes the tokens of an application that was removed. Servers revoke them again when they learn of
/// the removal, because they may issue some until then.
pub(super) async fn end_application(
    store: &StoreArgs,
    id: &AppId,
    by: &ChangedBy,
) -> Result<(), ExitError> {
    let store = KeysInStore::of_its_type(store).await?;
    // Without a pair there are no tokens.
    if !store.holds_pair().await? {
        return Ok(());
    }
    let now = store.now().await?;
    let id = id.to_string();
    let note = format!("{id}: its tokens are revoked");
    let revocation = Revocation::of_application(id, now, TOKEN_LIFETIME);
    record(&store, &[revocation], by, now).await?;
    print_note(&note);
    Ok(())
}

/// Ends the session that has this access token, and the other access tokens of it: its name alone may
/// be forged.
async fn end_session(
    store: &KeysInStore,
    (session, token_id): (SessionId, &str),
    by: &ChangedBy,
    now: i64,
) -> Result<(), ExitError> {
    let sessions = store.sessions();
    while let Some(held) = sessions.read(session).await? {
        let session_record = held.record.as_ref().map_err(Clone::clone)?;
        if !session_record.has_token(session, token_id) {
            return Ok(());
        }
        let revoked = session_record.revocation(session, now);
        record(store, revoked.as_slice(), by, now).await?;
        if sessions.remove(session, held).await? {
            print_note(
                "its session has ended as well, with all access tokens: the refresh token is of no use any more",
            );
            return Ok(());
        }
    }
    Ok(())
}

async fn record(
    store: &KeysInStore,
    revocations: &[Revocation],
    by: &ChangedBy,
    now: i64,
) -> Result<(), ExitError> {
    store
        .update(now, |ring, _| {
            let revoked = ring.clone().revoke_tokens(revocations, now);
            match revocations.first() {
                Some(first) if revoked != ring => {
                    Plan::Write(revoked.with_change(first.revoked.id(), by))
                }
                _ => Plan::Keep(ring),
            }
        })
        .await?;
    Ok(())
}

fn named(args: &RevokeArgs) -> Result<Named, ExitError> {
    if let Some(text) = &args.jti {
        return token_id(text.expose_secret()).map(Named::Token);
    }
    if let Some(user) = &args.user {
        return Ok(Named::User(user_id(user, args.users.as_ref())));
    }
    // clap requires one of the three.
    let app = args.app.clone().map(Named::Application);
    app.ok_or_else(|| ExitError::Usage("--jti, --user or --app is missing".to_owned()))
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

/// Returns a note about an application that is not registered.
async fn unknown(named: &Named, args: &RevokeArgs) -> Result<Option<String>, ExitError> {
    let Named::Application(id) = named else {
        return Ok(None);
    };
    let note = || format!("no application {id} is registered; it is recorded all the same");
    let is_known = is_registered(&args.store, id).await?;
    Ok((!is_known).then(note))
}

/// Returns the revoked tokens and the line that reports them.
fn revoked(named: Named, before: i64) -> (Revoked, String) {
    match named {
        Named::Token(id) => {
            let done = format!("token {} is revoked", id.escape_debug());
            (Revoked::Token { id, user: None }, done)
        }
        Named::User(id) => {
            let done = format!("the tokens of user {} are revoked", id.escape_debug());
            (Revoked::User { id, before }, done)
        }
        Named::Application(id) => {
            let (id, done) = (
                id.to_string(),
                format!("the tokens of application {id} are revoked"),
            );
            (Revoked::Application { id, before }, done)
        }
    }
}
