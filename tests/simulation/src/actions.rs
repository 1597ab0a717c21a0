//! The actions of clients, administrators and nature.

mod administration;

use std::sync::Arc;
use std::time::Duration;

use auth_server::simulation::{Administration, Reply};
use axum::body::Body;
use http::{Request, StatusCode, header};
use sidecar::simulation::Verdict;
use tokio::time::Instant;

pub use self::administration::register;
use self::administration::{OTHER, command, end, foreign_logout, register_other, revoke_key};
use crate::laws::Visited;
use crate::model::{Ended, Session, Token, USER};
use crate::plan::{Action, Credential, Presented};
use crate::world::World;

/// A client whose logout failed asks again this often.
const LOGOUTS: usize = 4;
/// A client whose refresh failed asks again this often.
const REFRESHES: usize = 4;
/// A token that comes by a refresh may have been issued so many seconds ago, in the response that was lost.
const RENEWED_BEFORE: i64 = 60;
/// The time after which no server has another time than the store, or a token from before.
const TIMES_DIFFER: Duration = Duration::from_secs(120);

pub async fn act(world: Arc<World>, action: Action) {
    match action {
        Action::Login { client, server } => {
            login(&world, client, server).await;
        }
        Action::Refresh {
            client,
            server,
            token,
        } => {
            refresh(&world, client, server, token).await;
        }
        Action::Logout { client, server, by } => {
            log_out(&world, client, server, by).await;
        }
        Action::Use {
            client,
            sidecar,
            former,
        } => {
            use_token(&world, client, sidecar, former).await;
        }
        Action::RotateKeys => {
            command(&world, Administration::RotateKeys).await;
        }
        Action::RevokeKey => revoke_key(&world, |id, current| id == current).await,
        Action::RevokeOtherKey => revoke_key(&world, |id, current| id != current).await,
        Action::RevokeUser => {
            let ended = Ended::User(USER.to_owned(), world.sky.store_now());
            end(&world, ended, Administration::RevokeUser(USER.to_owned())).await;
        }
        Action::ForeignLogout {
            session,
            server,
            is_lost,
        } => foreign_logout(&world, session, server, is_lost).await,
        Action::RevokeEveryone => {
            let ended = Ended::Everyone(world.sky.store_now());
            end(&world, ended, Administration::RevokeEveryone).await;
        }
        Action::RemoveApplication => {
            command(&world, Administration::RemoveApplication(OTHER.to_owned())).await;
        }
        Action::RegisterApplication => register_other(&world).await,
        Action::StartServer(server) => world.start_server(server),
        Action::KillServer(server) => world.kill_server(server),
        Action::StartSidecar(sidecar) => world.start_sidecar(sidecar),
        Action::KillSidecar(sidecar) => world.kill_sidecar(sidecar),
        Action::StoreAway(lasts) => {
            world
                .story
                .tell(|| format!("the store is away for {lasts:?}"));
            world.sky.take_store_away(lasts);
        }
        Action::CutOff { server, lasts } => {
            world
                .story
                .tell(|| format!("server {server} does not reach the store for {lasts:?}"));
            world.ways[server].cut_off(lasts);
        }
        Action::Isolate { sidecar, lasts } => {
            world
                .story
                .tell(|| format!("sidecar {sidecar} reaches no server for {lasts:?}"));
            world.isolate(sidecar, lasts);
        }
        Action::FailOver { lost } => fail_over(&world, lost),
        Action::SplitBrain {
            server,
            lost,
            lasts,
        } => {
            fail_over(&world, lost);
            world
                .story
                .tell(|| format!("server {server} goes on with the former one for {lasts:?}"));
            world.ways[server].stay_with_former(lasts);
        }
        Action::Restore { lost } => {
            world.store.restore(lost);
            world
                .story
                .tell(|| format!("a backup takes the place of the store, {lost} commits old"));
            world.laws.lock().store_has_lost(&world, true);
        }
        Action::Flush => {
            world.store.flush();
            world.story.tell(|| "the store loses everything".to_owned());
            world.laws.lock().store_has_lost(&world, true);
        }
        Action::SetServerClock { server, seconds } => {
            world
                .story
                .tell(|| format!("the clock of server {server} is {seconds} s ahead"));
            world.set_clock(server, seconds);
        }
        Action::SetStoreClock { seconds } => {
            world
                .story
                .tell(|| format!("the clock of the store is {seconds} s ahead"));
            world.sky.set_store_ahead(seconds);
        }
    }
}

fn fail_over(world: &World, lost: usize) {
    let lost = world.store.fail_over(lost);
    world
        .story
        .tell(|| format!("a copy takes the place of the store, without the last {lost} commits"));
    let is_lossy = lost > 0 && !world.setting.waits;
    world.laws.lock().store_has_lost(world, is_lossy);
}

fn posted(path: &str, content_type: &str, body: String) -> Request<Body> {
    Request::post(format!("/auth{path}"))
        .header(header::CONTENT_TYPE, content_type)
        .header(header::CONTENT_LENGTH, body.len())
        .body(Body::from(body))
        .expect("a request")
}

fn form(path: &str, body: String) -> Request<Body> {
    posted(path, "application/x-www-form-urlencoded", body)
}

fn json(reply: &Reply) -> serde_json::Value {
    serde_json::from_slice(&reply.body).unwrap_or_default()
}

fn described(reply: Option<&Reply>) -> String {
    let Some(reply) = reply else {
        return "no response".to_owned();
    };
    match reply.status {
        StatusCode::OK => "200".to_owned(),
        status => format!(
            "{} {}",
            status.as_u16(),
            String::from_utf8_lossy(&reply.body)
        ),
    }
}

/// Logs a client in. Returns true with a session.
pub async fn login(world: &Arc<World>, client: usize, server: usize) -> bool {
    let body = r#"{"username":"ada","password":"ada's"}"#.to_owned();
    let began = Instant::now();
    let (sent, has_time) = (world.sky.store_now(), world.has_compared_clocks(server));
    let reply = world
        .request(server, posted("/oauth/jwt/token", "application/json", body))
        .await;
    world.story.tell(|| {
        format!(
            "client {client} logs in at server {server}: {}",
            described(reply.as_ref())
        )
    });
    let Some(reply) = reply.filter(|reply| reply.status == StatusCode::OK) else {
        return false;
    };
    let data = &json(&reply)["data"];
    let token = data["access_token"].as_str().and_then(Token::read);
    let mut laws = world.laws.lock();
    laws.require(token.is_some(), || {
        format!("a login without a token: {data}")
    });
    let Some(token) = token else {
        return false;
    };
    let refresh_token = data["refresh_token"].as_str().map(str::to_owned);
    let has_session = refresh_token.is_some();
    let has_time = has_time && world.has_compared_clocks(server);
    let session = token.claims.session.clone().unwrap_or_default();
    laws.require(has_session != session.is_empty(), || {
        format!("a login gives the session {session:?}, and a refresh token: {has_session}")
    });
    laws.issued(
        &token,
        &session,
        has_time.then(|| sent..=world.sky.store_now()),
    );
    let is_safe = !laws.has_lost_since(began);
    laws.clients[client] = laws.sessions.len();
    laws.sessions.push(Session {
        id: session,
        received: refresh_token
            .into_iter()
            .map(|it| (it, Instant::now()))
            .collect(),
        is_safe,
        ..Session::default()
    });
    laws.tokens.push(token);
    has_session
}

/// Uses a refresh token. Returns true for the next one.
pub async fn refresh(world: &Arc<World>, client: usize, server: usize, which: Presented) -> bool {
    let began = Instant::now();
    let (session, presented, is_latest) = {
        let laws = world.laws.lock();
        let session = laws.clients[client];
        let Some(known) = laws.sessions.get(session) else {
            return false;
        };
        let latest = known.received.len().saturating_sub(1);
        let position = match which {
            Presented::Latest => latest,
            Presented::Former => latest.saturating_sub(1),
            Presented::First => 0,
        };
        let Some((token, _)) = known.received.get(position) else {
            return false;
        };
        (session, token.clone(), position == latest)
    };
    if !is_latest {
        // It may end the session, also where this client does not live to hear of it.
        let mut laws = world.laws.lock();
        let id = laws.sessions[session].id.clone();
        laws.note(Ended::Session(id), None);
    }
    let (mut sent, mut reply) = (began, None);
    for _ in 0..REFRESHES {
        sent = Instant::now();
        let body = format!("grant_type=refresh_token&refresh_token={presented}");
        reply = world.request(server, form("/oauth/token", body)).await;
        world.story.tell(|| {
            format!(
                "client {client} refreshes session {session} at server {server} with {which:?}: {}",
                described(reply.as_ref())
            )
        });
        if reply
            .as_ref()
            .is_some_and(|reply| reply.status.as_u16() < 500)
            || !is_latest
        {
            break;
        }
        world.laws.lock().refresh_failed(session, began);
        tokio::time::sleep(Duration::from_secs(3)).await;
        // Another request of this client may have brought the next one meanwhile.
        if !world.laws.lock().sessions[session].has_latest(&presented) {
            return false;
        }
    }
    let Some(reply) = reply else {
        return false;
    };
    let said = json(&reply);
    let mut laws = world.laws.lock();
    if reply.status == StatusCode::OK {
        let next = said["refresh_token"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        laws.renewed(session, &presented, &next, sent);
        if let Some(mut token) = said["access_token"].as_str().and_then(Token::read) {
            let id = laws.sessions[session].id.clone();
            let now = world.sky.store_now();
            let has_time = world.sky.clock_set() + TIMES_DIFFER < Instant::now();
            laws.issued(&token, &id, has_time.then(|| now - RENEWED_BEFORE..=now));
            token.login = laws.login_time(&id);
            laws.tokens.push(token);
        }
        return true;
    }
    if reply.status == StatusCode::BAD_REQUEST && said["error"] == "invalid_grant" {
        // A used refresh token has ended its session, before this response. The latest that the client
        // knows may be one: the response to its use was lost.
        laws.session_is_over(session, &presented, !is_latest);
    }
    false
}

/// Logs a client out, again where that fails. Returns true once it is confirmed.
pub async fn log_out(world: &Arc<World>, client: usize, server: usize, by: Credential) -> bool {
    let (session, id, token) = {
        let laws = world.laws.lock();
        let session = laws.clients[client];
        let Some(known) = laws.sessions.get(session) else {
            return false;
        };
        let id = known.id.clone();
        let of_session = |token: &&Token| token.claims.session.as_deref() == Some(id.as_str());
        let access = laws.tokens.iter().rev().find(of_session);
        let token = match by {
            Credential::RefreshToken => known.received.last().map(|(token, _)| token.clone()),
            Credential::AccessToken => access.map(|token| token.text.clone()),
        };
        let Some(token) = token.filter(|_| !id.is_empty()) else {
            return false;
        };
        (session, id, token)
    };
    let position = world.laws.lock().note(Ended::Session(id), None);
    for attempt in 0..LOGOUTS {
        let sent = Instant::now();
        let reply = world
            .request(server, form("/oauth/revoke", format!("token={token}")))
            .await;
        world.story.tell(|| {
            format!(
                "client {client} logs out of session {session} at server {server} by {by:?}: {}",
                described(reply.as_ref())
            )
        });
        if reply.is_some_and(|reply| reply.status == StatusCode::OK) {
            let mut laws = world.laws.lock();
            if laws.promises_end(world, session, &token) {
                // Otherwise the server may have found no session, and know of no end.
                let ended = &laws.ends[position].ended;
                let times = laws.ends.iter().filter(|end| end.ended == *ended).count();
                let by = (attempt == 0 && times == 1).then_some(server);
                laws.confirm(world, position, by, sent);
                laws.sessions[session].over = Some(Instant::now());
            }
            return true;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    false
}

/// Sends a request with a token of a client through a sidecar. Returns true where the service gets it.
pub async fn use_token(world: &Arc<World>, client: usize, sidecar: usize, former: bool) -> bool {
    let Some(running) = world.sidecar(sidecar) else {
        return false;
    };
    let token = {
        let laws = world.laws.lock();
        let session = laws.sessions.get(laws.clients[client]);
        let id = session.map(|session| session.id.clone());
        let of_session = |token: &&Token| token.claims.session == id;
        let mut tokens = laws.tokens.iter().rev().filter(of_session);
        let token = if former {
            tokens.next_back()
        } else {
            tokens.next()
        };
        token.cloned()
    };
    let Some(token) = token else {
        return false;
    };
    let keys = running.keys();
    let verdict = running.decide(&token.text).await;
    world
        .story
        .tell(|| format!("client {client} comes to sidecar {sidecar}: {verdict:?}"));
    let Some(verdict) = verdict else {
        return false;
    };
    world
        .laws
        .lock()
        .decided(world, sidecar, &token, &keys, verdict);
    let is_served = verdict == Verdict::Forwarded;
    if is_served {
        // A token without its signature, as it stands in logs, is of no use.
        let verdict = running.decide(&forged(&token.text)).await;
        let is_rejected = matches!(verdict, None | Some(Verdict::Rejected(_, 401)));
        world.laws.lock().require(is_rejected, || {
            format!("sidecar {sidecar} says {verdict:?} to another signature")
        });
    }
    request_user(world, sidecar % world.setting.servers, &token).await;
    is_served
}

/// Returns the token with another signature.
fn forged(token: &str) -> String {
    let (signed, signature) = token.split_at(token.len() - 40);
    let other = if signature.starts_with('A') { "B" } else { "A" };
    format!("{signed}{other}{}", &signature[1..])
}

/// Requests the user of a token from a server.
async fn request_user(world: &Arc<World>, server: usize, token: &Token) {
    let visited = Visited {
        server,
        polled: world.polled(server),
    };
    let request = Request::get("/auth/current/user/details")
        .header(header::AUTHORIZATION, format!("Bearer {}", token.text))
        .body(Body::empty())
        .expect("a request");
    let Some(reply) = world.request(server, request).await else {
        return;
    };
    world.story.tell(|| {
        format!(
            "server {server} says the user of a token: {}",
            described(Some(&reply))
        )
    });
    let mut laws = world.laws.lock();
    laws.user_requested(world, visited, token, reply.status);
}
