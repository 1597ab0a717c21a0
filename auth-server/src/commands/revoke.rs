//! `revoke`: adds revocations of tokens to the store while servers run, which publish them after
//! their next poll.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use postern_process::exit::ExitError;
use postern_token::unverified::DecodedToken;
use secrecy::ExposeSecret;

use super::store::CommandStore;
use super::{ATTEMPTS, print, print_note};
use crate::accounts::applications::AppId;
use crate::accounts::sessions::refresh_token::{self, SessionId};
use crate::cli::revoke::{RevokeArgs, id};
use crate::revocations::Revocation;
use crate::store::Outcome;
use crate::telemetry::audit::events::RevocationEvent;

pub(crate) async fn run(args: &RevokeArgs) -> Result<(), ExitError> {
    let store = CommandStore::open(&args.store).await?;
    if store.pair.is_none() {
        return Err(store.no_pair().into());
    }
    let now = store.now().await?;
    let (revocation, done) = revocation(args, now)?;
    if args.user.is_some() && args.issuer.is_none() {
        // The id and the account look alike: a wrong one would revoke nothing, without an error.
        print_note("--user is the id (sub, userId), not the account; user list shows both");
    }
    if let Some(id) = &args.app
        && let there = store.opened.read_applications().await?.document()?
        && there.registered_id(id.as_str()).is_none()
    {
        print_note(&format!(
            "no application {id} is registered; it is recorded all the same"
        ));
    }
    // A token with a session is revoked together with the session, in one commit.
    let ended = match &revocation.event {
        RevocationEvent::Token { id, .. } => end_session(&store, id, now).await?,
        _ => false,
    };
    if !ended {
        store.append(&revocation, None).await?;
    }
    let location = &store.location;
    print_note(&format!(
        "{location} has it, each of its servers one --store-poll-interval later, every sidecar that takes its list at the next fetch"
    ));
    print(&done)
}

/// Returns the revocation of a command line, and the line that reports it.
fn revocation(args: &RevokeArgs, now: i64) -> Result<(Revocation, String), ExitError> {
    if let Some(text) = &args.jti {
        let id = token_id(text.expose_secret())?;
        let done = format!("token {} is revoked", id.escape_debug());
        return Ok((Revocation::for_token(id, None, now), done));
    }
    if let Some(user) = &args.user {
        let name = user.escape_debug();
        let Some(issuer) = &args.issuer else {
            let done = format!("the tokens of user {name} are revoked");
            return Ok((Revocation::for_user(user.clone(), now), done));
        };
        let done = format!(
            "the tokens of user {name} of {} are revoked",
            issuer.escape_debug()
        );
        let revocation = Revocation::for_foreign_user(issuer.clone(), user.clone(), now);
        return Ok((revocation, done));
    }
    if let Some(id) = &args.app {
        let done = format!("the tokens of application {id} are revoked");
        return Ok((Revocation::for_application(id.to_string(), now), done));
    }
    // clap requires one of the four flags: this is `--all`.
    Ok((
        Revocation::for_everyone(now),
        "all tokens are revoked".to_owned(),
    ))
}

/// Revokes the tokens of an application that was removed. Servers revoke them again when they read the
/// removal, because they may issue tokens until then.
pub(crate) async fn end_application(store: &CommandStore, id: &AppId) -> Result<(), ExitError> {
    if store.pair.is_none() {
        return Ok(());
    }
    let revocation = Revocation::for_application(id.to_string(), store.now().await?);
    store.append(&revocation, None).await?;
    print_note(&format!("{id}: its tokens are revoked"));
    Ok(())
}

/// Ends the session that has this access token, with all its access tokens, in one commit. The record has to
/// know the token, because the session's name alone may be forged. Returns false without such a session.
async fn end_session(store: &CommandStore, token_id: &str, now: i64) -> Result<bool, ExitError> {
    let Some(session) = SessionId::from_token_id(token_id) else {
        return Ok(false);
    };
    for _ in 0..ATTEMPTS {
        // A refresh may change the record until the commit: then read it again.
        let held = store.opened.read_session(session).await?;
        let removal = held.removal();
        let Some(record) = held.record? else {
            return Ok(false);
        };
        let Some(revocation) = record.revocation(session, now) else {
            return Ok(false);
        };
        if !record.has_token(session, token_id) {
            return Ok(false);
        }
        if store.append(&revocation, removal).await? == Outcome::Committed {
            print_note(
                "its session has ended as well, with all access tokens: the refresh token is of no use any more",
            );
            return Ok(true);
        }
    }
    Err(ExitError::Unavailable(
        "the session keeps changing: revoke its user".to_owned(),
    ))
}

/// Returns the id of a token: `text` itself, or the `jti` in a whole token, which is not verified. A refresh
/// token is an error: it has no id, and would stand in the log.
fn token_id(text: &str) -> Result<String, ExitError> {
    let decoded = DecodedToken::decode(text);
    let named = match &decoded {
        Some(token) => token.claims.get("jti").and_then(|id| id.as_str()),
        // The jti of the token is after the cut, and a part of a token is no id.
        None if begins_a_token(text) => None,
        None => Some(text),
    };
    if let Some(named) = named
        && !named.starts_with(refresh_token::PREFIX)
        && let Ok(id) = id(named)
    {
        return Ok(id);
    }
    Err(ExitError::Usage(
        "--jti: expected the jti of a token, 1 to 128 characters, or a whole access token (not cut off) that has \
         one; a refresh token ends by a logout (POST /oauth/revoke) or --user"
            .to_owned(),
    ))
}

/// Returns true for a text whose first part may be the header of a JWT, or the beginning of one: encoded text that
/// begins with an object.
fn begins_a_token(text: &str) -> bool {
    let header = text.split('.').next().unwrap_or_default();
    let whole = header.get(..header.len() / 4 * 4).unwrap_or_default();
    let decoded = URL_SAFE_NO_PAD.decode(whole);
    decoded.is_ok_and(|it| it.starts_with(b"{\"") && it.is_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_token_or_a_part_of_a_token_is_no_id_of_one() {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let (header, claims) = (part(r#"{"alg":"ES256"}"#), part(r#"{"jti":"Zk3v"}"#));
        let token = format!("{header}.{claims}.c2ln");
        for text in ["Zk3v", "https://a.example/7", &token] {
            assert!(token_id(text).is_ok(), "{text}");
        }
        for text in ["postern_rt_Zk3v", &header, &claims, &token[..30]] {
            assert!(token_id(text).is_err(), "{text}");
        }
    }
}
